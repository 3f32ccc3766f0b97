#!/usr/bin/env bash
# Feeds every file of testdata/must_fail to every command that reads its kind.
# Contract: `must_fail.sh BIN_DIR SOURCE_DIR [limit]` exits 0 where each such command exits 2 within 30 s, with one line on stderr that
# names the file (or stdin), nothing on stdout, no output file but a .part, and an existing output untouched. With `limit` each runs
# in 4 GB of address space (not under sanitizers, which reserve more).
set -uo pipefail
export LC_ALL=C

bin=$(realpath "$1")
source_dir=$(realpath "$2")
limit=${3-}
unset "${!LOGITGATE_@}" "${!MEMRA_@}" "${!SLURM_@}" 2>/dev/null
export PATH=$bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" && ln -s "$source_dir/testdata" testdata
if [[ $limit == limit ]]; then ulimit -v 4000000; fi

readonly model=testdata/golden/qwen3.q8_0.gguf tokens=testdata/golden/tokens.jsonl
printf '{"tokens": [1, 2, 3]}\n' >few.jsonl # within the vocabulary of the models of model_run
runs=0
failures=0

complain() {
  printf '%s\n  %s\n' "$1" "$2"
  failures=$((failures + 1))
}

refuse() { # file or stdin (its name in messages), command…
  local name=$1 status=0 label
  shift
  label="$ logitgate $*"
  if [[ $name == stdin ]]; then label+=" < $file"; fi
  runs=$((runs + 1))
  rm -f out.* && echo precious >kept.zst
  timeout 30 logitgate "$@" >stdout 2>stderr || status=$?
  if [[ $status -ne 2 ]]; then complain "$label" "exit $status, expected 2; stderr: $(head -c 1000 stderr)"; fi
  if [[ -s stdout ]]; then complain "$label" "stdout is not empty: $(head -c 200 stdout)"; fi
  if [[ $(wc -l <stderr) -ne 1 || $(head -c 11 stderr) != 'logitgate: ' ]]; then
    complain "$label" "stderr is not one line of logitgate: $(head -c 1000 stderr)"
  elif ! grep -qF -- "$name" stderr; then
    complain "$label" "the message does not name $name: $(head -c 1000 stderr)"
  elif (($(wc -c <stderr) > 600)); then
    complain "$label" "the message is $(wc -c <stderr) bytes long"
  fi
  if compgen -G 'out.*' | grep -v '\.part$'; then complain "$label" "left an output"; fi
  if [[ $(cat kept.zst) != precious ]]; then complain "$label" "an existing output was touched"; fi
}

engine() { # name in messages, arguments
  local name=$1
  shift
  refuse "$name" prefill "$@" -o out.zst
  refuse "$name" decode-prime "$@" -f -o kept.zst
}

find_files() { # folder; fills `files`
  files=(testdata/must_fail/"$1"/*)
  [[ -f ${files[0]} ]] || { echo "testdata/must_fail/$1 has no files" && exit 1; }
}

find_files model
for file in "${files[@]}"; do
  name=${file/part-00001/part-00002} # of a split set it is the second that is missing
  refuse "$name" inspect "$file"
  refuse "$name" inspect --verify --json "$file"
  engine "$name" few.jsonl -m "$file"
done
find_files model_run
for file in "${files[@]}"; do engine "$file" few.jsonl -m "$file"; done

find_files batch
for file in "${files[@]}"; do
  refuse "$file" inspect "$file"
  engine "$file" "$file" -m $model
  refuse stdin prefill - -m $model -o out.zst <"$file"
  refuse stdin prefill - -m $model -o out.zst < <(cat "$file")
  refuse "$file" import testdata/golden/qwen3.q8_0.logits.npy --tokens "$file" -o out.zst
done
find_files batch_run
for file in "${files[@]}"; do engine "$file" "$file" -m $model; done

find_files array
for file in "${files[@]}"; do
  refuse "$file" import "$file" --tokens $tokens -o out.zst
  refuse "$file" import "$file" --tokens $tokens -f -o kept.zst
done

logitgate import testdata/golden/qwen3.q8_0.logits.npy --tokens $tokens --records 5 -o good.zst || exit 1
find_files dump
for file in "${files[@]}"; do
  refuse "$file" inspect --verify "$file"
  for verb in compare gate; do
    refuse "$file" $verb "$file" good.zst
    refuse "$file" $verb good.zst "$file"
    refuse stdin $verb good.zst - < <(cat "$file")
  done
  refuse "$file" export "$file" -o out.npy
done

echo "$runs runs over testdata/must_fail, $failures failures"
((failures == 0))
