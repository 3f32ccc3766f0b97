#!/usr/bin/env bash
# Peak memory does not grow with the input: ten times the records differ by less than 5 %.
# Contract: `memory_test.sh BIN_DIR TOOLS_DIR SOURCE_DIR` prints the peaks of prefill, decode-prime, compare and gate and exits 1 where one
# grows by 5 % or more. The smaller input already fills every queue. A peak is the least of three runs: it varies with how
# threads happen to interleave, the bound that is tested does not.
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
readonly copies=30 # of the 8 records of tokens.jsonl, 25 MB of f32 logits

make_batch() { # copies
  local i
  for ((i = 0; i < $1; ++i)); do sed "s/\"id\": \"/&$i-/" "$tokens"; done
}

peak() { # exit codes that are right, command…: prints KiB
  local allowed=$1 least='' run status kib
  shift
  for run in 1 2 3; do
    status=0
    "$tools/peak_memory" peak.kib "$bin/logitgate" "$@" >stdout 2>stderr || status=$?
    if [[ " $allowed " != *" $status "* ]]; then
      echo "exit $status of run $run: logitgate $*: $(cat stderr)" >&2
      return 1
    fi
    kib=$(<peak.kib)
    if [[ -z $least ]] || ((kib < least)); then least=$kib; fi
  done
  echo "$least"
}

failures=0
judge() { # name, smaller, larger
  printf '%-13s %8d KiB, %8d KiB at ten times the input\n' "$1" "$2" "$3"
  if (($3 * 100 >= $2 * 105)); then
    echo "  grows by 5 % or more"
    failures=$((failures + 1))
  fi
}

make_batch $copies >small.jsonl
make_batch $((copies * 10)) >large.jsonl
for verb in prefill decode-prime; do
  small=$(peak 0 $verb small.jsonl -m "$model" --rows all -f -o $verb.small.zst)
  large=$(peak 0 $verb large.jsonl -m "$model" --rows all -f -o $verb.large.zst)
  judge $verb "$small" "$large"
done
for verb in compare gate; do
  small=$(peak '0 1' $verb decode-prime.small.zst prefill.small.zst --rows all)
  large=$(peak '0 1' $verb decode-prime.large.zst prefill.large.zst --rows all)
  judge $verb "$small" "$large"
done
((failures == 0))
