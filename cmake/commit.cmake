# Writes OUTPUT, a header with the source's git commit, and touches it only where the commit changed.
# In an archive made by `git archive` the commit stands in archive_commit.txt; elsewhere without git it is "unknown".
# Called at build time: cmake -DSOURCE=dir -DOUTPUT=file -P commit.cmake
set(commit "unknown")
find_program(git git)
if(git AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${git} -c safe.directory=${SOURCE} describe --always --abbrev=12 --dirty --exclude=*
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(commit "${described}")
  endif()
else()
  file(STRINGS ${SOURCE}/cmake/archive_commit.txt archived LIMIT_COUNT 1)
  if(archived MATCHES "^[0-9a-f]+$")
    string(SUBSTRING "${archived}" 0 12 commit)
  endif()
endif()
set(content "#define LOGITGATE_COMMIT \"${commit}\"\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL content)
  file(WRITE ${OUTPUT} "${content}")
endif()
