#!/usr/bin/env bash
# Runs a CLI test: commands, and beside each the exit code and the output that it must have.
# Contract: `run.sh BIN_DIR SOURCE_DIR FILE.test` exits 0 where every command of the file did what the file says, else 1 after a
# report. The commands run in bash, one after another in one empty folder, with `logitgate` on the PATH, `testdata` beside them,
# and no variable of ours or of Slurm's in the environment.
#
# A .test file is lines of
#   # comment
#   $ COMMAND         run it; a line that ends in \ goes on in the next
#   ? N               it must exit N (0 where this line is missing)
#   > TEXT            the next line of its stdout is TEXT
#   >~ REGEX          … matches REGEX as a whole (bash's extended expressions)
#   2> TEXT, 2>~ REGEX  the same for stderr
#   >..., 2>...       anything may follow
# Output that is not announced is a failure.
set -uo pipefail
export LC_ALL=C

bin=$(realpath "$1")
source_dir=$(realpath "$2")
file=$(realpath "$3")
unset "${!LOGITGATE_@}" "${!MEMRA_@}" "${!SLURM_@}" 2>/dev/null
export PATH=$bin:$PATH TERM=dumb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/run" && cd "$work/run" && ln -s "$source_dir/testdata" testdata

failures=0
commands=0

complain() {
  printf '%s:%s: $ %s\n  %s\n' "$file" "$line_of_command" "$command" "$*"
  failures=$((failures + 1))
}

# Compares a stream with what was announced for it.
check_stream() { # name, file of what came, then the announced lines, each with its kind in front: "= TEXT", "~ REGEX", "..."
  local name=$1 came=$2 i=0 line expected
  shift 2
  local -a lines=()
  mapfile -t lines <"$came"
  for expected in "$@"; do
    if [[ $expected == ... ]]; then return; fi
    line=${lines[i]-}
    if ((i >= ${#lines[@]})); then
      complain "$name ended where this was expected: ${expected:2}"
      return
    elif [[ $expected == '= '* && $line != "${expected:2}" ]]; then
      complain "$name, line $((i + 1)):"$'\n'"    expected: ${expected:2}"$'\n'"    came:     $line"
      return
    elif [[ $expected == '~ '* && ! $line =~ ^(${expected:2})$ ]]; then
      complain "$name, line $((i + 1)):"$'\n'"    expected to match: ${expected:2}"$'\n'"    came:              $line"
      return
    fi
    i=$((i + 1))
  done
  if ((i < ${#lines[@]})); then complain "$name has more than was expected: ${lines[i]}"; fi
}

run_command() {
  [[ -n $command ]] || return
  commands=$((commands + 1))
  local status=0
  bash -c "$command" </dev/null >"$work/stdout" 2>"$work/stderr" || status=$?
  if [[ $status -ne $want_status ]]; then
    complain "exit $status, expected $want_status; stderr: $(head -c 2000 "$work/stderr")"
  fi
  check_stream stdout "$work/stdout" "${want_stdout[@]}"
  check_stream stderr "$work/stderr" "${want_stderr[@]}"
}

command='' line_of_command=0 want_status=0 want_stdout=() want_stderr=() line_number=0
while IFS= read -r line || [[ -n $line ]]; do
  line_number=$((line_number + 1))
  case $line in
    '' | '#'*) ;;
    '$ '*)
      run_command
      command=${line:2} line_of_command=$line_number want_status=0 want_stdout=() want_stderr=()
      while [[ $command == *\\ ]] && IFS= read -r line; do
        line_number=$((line_number + 1))
        command=${command%\\}$line
      done
      ;;
    '? '*) want_status=${line:2} ;;
    '>...') want_stdout+=('...') ;;
    '2>...') want_stderr+=('...') ;;
    '>~ '*) want_stdout+=("~ ${line:3}") ;;
    '2>~ '*) want_stderr+=("~ ${line:4}") ;;
    '>'*) want_stdout+=("= $(sed 's/^> \{0,1\}//' <<<"$line")") ;;
    '2>'*) want_stderr+=("= $(sed 's/^2> \{0,1\}//' <<<"$line")") ;;
    *)
      printf '%s:%s: not a line of a CLI test: %s\n' "$file" "$line_number" "$line"
      exit 1
      ;;
  esac
done <"$file"
run_command

if ((commands == 0)); then
  printf '%s: no command in this file\n' "$file"
  exit 1
fi
((failures == 0))
