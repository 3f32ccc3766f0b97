# Writes formats/quant/all.h, which includes the header of every weight type that computes, from types.def: adding a
# type takes its header and its line there.
set(types_def ${CMAKE_CURRENT_LIST_DIR}/types.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${types_def})
file(STRINGS ${types_def} lines REGEX "^LOGITGATE_WEIGHT_TYPE")
set(all_h "// The block struct and decode of every weight type that computes; generated from types.def.\n#pragma once\n\n")
foreach(line ${lines})
  string(REGEX REPLACE ".*, *([a-z0-9_]+)\\)$" "\\1" header ${line})
  string(APPEND all_h "#include \"formats/quant/${header}.h\"\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/formats/quant/all.h CONTENT "${all_h}" @ONLY)
target_include_directories(logitgate_options INTERFACE ${CMAKE_BINARY_DIR}/generated)
