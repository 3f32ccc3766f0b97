#!/usr/bin/env bash
# Peak memory does not grow with the input: ten times the records differ by less than 5 %, and 64 bytes a record for its id.
# Contract: `memory_test.sh BIN_DIR TOOLS_DIR SOURCE_DIR` prints the peaks of prefill, decode-prime, compare and gate and exits 1 where one
# grows by more. A peak depends on how the threads happen to interleave, up to a bound that the larger input meets more
# often: so the largest peak of five runs over the smaller input is held against the smallest of two over the larger.
set -euo pipefail
export LC_ALL=C

bin=$(realpath "$1")
tools=$(realpath "$2")
source_dir=$(realpath "$3")
unset "${!LOGITGATE_@}" "${!MEMRA_@}" "${!SLURM_@}" 2>/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
readonly model=$source_dir/testdata/golden/qwen3.q8_0.gguf tokens=$source_dir/testdata/golden/tokens.jsonl
make_batch() { # copies of the longest record, under ids of their own
  local record
  record=$(grep '"text-300"' "$tokens")
  awk -v n="$1" -v record="$record" 'BEGIN { for (i = 0; i < n; ++i) { line = record; sub(/text-300/, "r" i, line); print line } }'
}

peak() { # largest or smallest, number of runs, exit codes that are right, command…: prints KiB
  local which=$1 runs=$2 allowed=$3 found='' run status kib
  shift 3
  for ((run = 1; run <= runs; ++run)); do
    status=0
    "$tools/peak_memory" peak.kib "$bin/logitgate" "$@" >stdout 2>stderr || status=$?
    if [[ " $allowed " != *" $status "* ]]; then
      echo "exit $status of run $run: logitgate $*: $(cat stderr)" >&2
      return 1
    fi
    kib=$(<peak.kib)
    if [[ -z $found || ($which == largest && $kib -gt $found) || ($which == smallest && $kib -lt $found) ]]; then
      found=$kib
    fi
  done
  echo "$found"
}

failures=0
judge() { # name, smaller peak, larger peak, records of the smaller input
  printf '%-13s %8d KiB for %5d records, %8d KiB for %5d\n' "$1" "$2" "$4" "$3" $(($4 * 10))
  if (($3 * 1024 >= $2 * 1024 * 105 / 100 + $4 * 9 * 64)); then
    echo "  grows by 5 % and the ids, or more"
    failures=$((failures + 1))
  fi
}

engine() { # verb, copies, files' name
  make_batch "$2" >"$3.small.jsonl"
  make_batch $(($2 * 10)) >"$3.large.jsonl"
  local small large
  small=$(peak largest 5 0 "$1" "$3.small.jsonl" -m "$model" --rows all --threads 2 -q -f -o "$3.small.zst")
  large=$(peak smallest 1 0 "$1" "$3.large.jsonl" -m "$model" --rows all --threads 2 -q -f -o "$3.large.zst")
  judge "$1" "$small" "$large" "$2"
}
engine decode-prime 60 decode
rm decode.*
engine prefill 600 prefill
for verb in compare gate; do
  small=$(peak largest 5 0 $verb prefill.small.zst prefill.small.zst --rows all --threads 2)
  large=$(peak smallest 2 0 $verb prefill.large.zst prefill.large.zst --rows all --threads 2)
  judge $verb "$small" "$large" 600
done
((failures == 0))
