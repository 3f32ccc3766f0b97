#!/usr/bin/env bash
# The promises of the README, through the command line: golden logits, equal bytes, pipelines.
# Contract: acceptance_test.sh LOGITGATE TESTDATA; prints a line a check, exits 1 at the first that fails.
set -euo pipefail
lg=$1 data=$2/golden
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
unset LOGITGATE_MODEL LOGITGATE_MAX_DIFF LOGITGATE_MARGIN MEMRA_PRIME_GATE_MAXDIFF MEMRA_PRIME_GATE_MARGIN LOGITGATE_SIMD

fail() { echo "FAILED: $*" >&2; exit 1; }
# status EXPECTED COMMAND…: runs it, its exit code must be EXPECTED.
status() {
  local want=$1 got=0
  shift
  "$@" > "$dir/stdout" 2> "$dir/stderr" || got=$?
  [ "$got" = "$want" ] || { cat "$dir/stdout" "$dir/stderr" >&2; fail "exit $got, expected $want: $*"; }
}
# number KEY FILE: the first number of that key in a JSON file.
number() { grep -o "\"$1\": *[-+.0-9eE]*" "$2" | head -1 | sed 's/.*: *//'; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a + 0 <= b + 0) }'; }
same() { cmp -s "$1" "$2" || fail "bytes differ: $3"; }

echo "golden logits"
head -n 5 "$data/tokens.jsonl" > "$dir/five.jsonl"
for model in qwen3.f32 qwen3.f16 qwen3.bf16 qwen3.q8_0; do
  tokens=$dir/five.jsonl
  [ $model = qwen3.f32 ] && tokens=$data/tokens.jsonl
  status 0 "$lg" import "$data/$model.logits.npy" --tokens "$tokens" -o "$dir/golden.zst" -f
  for precision in f64 f32; do
    bound=1e-3
    [ $precision = f64 ] && bound=2e-5
    for verb in prefill decode-prime; do
      status 0 "$lg" $verb "$tokens" -m "$data/$model.gguf" --rows all --precision $precision --device cpu -o "$dir/$verb.zst" -f
      status 1 "$lg" compare "$dir/golden.zst" "$dir/$verb.zst" --json
      worst=$(number max_abs_diff "$dir/stdout")
      at_most "$worst" $bound || fail "$model $precision $verb: max_abs_diff $worst exceeds $bound"
      [ $precision = f32 ] || [ "$(number top1_agreement "$dir/stdout")" = 1.0 ] || fail "$model $verb: an argmax moved in f64"
      echo "  $model $verb $precision: max_abs_diff $worst"
    done
    status 0 "$lg" gate "$dir/decode-prime.zst" "$dir/prefill.zst" --rows all
    status 0 "$lg" gate "$dir/decode-prime.zst" "$dir/prefill.zst" --rows all --max-diff auto
  done
done

echo "equal bytes"
model=$data/qwen3.q8_0.gguf
for verb in prefill decode-prime; do
  run() { status 0 "$lg" $verb "$data/tokens.jsonl" -m "$model" --rows all --device cpu "$@"; }
  run -o "$dir/reference.zst" -f
  again() { run -o "$dir/again.zst" -f "$@"; same "$dir/reference.zst" "$dir/again.zst" "$verb $*"; }
  again
  for threads in 1 2 3; do again --threads $threads; done
  if [ $verb = prefill ]; then
    for n in 1 7 64 4096; do again --batch-tokens $n; done
  else
    for n in 1 3 8; do again --lanes $n; done
  fi
  LOGITGATE_SIMD=avx2 again
  "$lg" $verb - -m "$model" --rows all --device cpu < "$data/tokens.jsonl" > "$dir/again.zst"
  same "$dir/reference.zst" "$dir/again.zst" "$verb from stdin to stdout"
  tac "$data/tokens.jsonl" > "$dir/reversed.jsonl"
  status 0 "$lg" $verb "$dir/reversed.jsonl" -m "$model" --rows all --device cpu -o "$dir/reversed.zst" -f
  status 0 "$lg" compare "$dir/reference.zst" "$dir/reversed.zst"
  cp "$dir/reference.zst" "$dir/$verb.q8.zst"
done

echo "pipelines"
zstd -q -t "$dir/prefill.q8.zst" || fail "zstd -t refuses a dump"
"$lg" prefill - -m "$model" --rows all --device cpu -o - < "$data/tokens.jsonl" |
  "$lg" gate "$dir/decode-prime.q8.zst" - --rows all > "$dir/stdout" || fail "gate from a pipe"
head -n 3 "$data/tokens.jsonl" > "$dir/a.jsonl"
tail -n +4 "$data/tokens.jsonl" > "$dir/b.jsonl"
for part in a b; do
  status 0 "$lg" prefill "$dir/$part.jsonl" -m "$model" --rows all --device cpu -o "$dir/$part.zst"
done
cat "$dir/a.zst" "$dir/b.zst" > "$dir/both.zst"
zstd -q -t "$dir/both.zst" || fail "zstd -t refuses a concatenation"
status 0 "$lg" compare "$dir/prefill.q8.zst" "$dir/both.zst"
status 0 "$lg" gate "$dir/decode-prime.q8.zst" "$dir/both.zst" --rows all
status 2 "$lg" gate "$dir/decode-prime.q8.zst" "$dir/a.zst" --rows all
for i in 0 1 2; do
  status 0 "$lg" prefill "$data/tokens.jsonl" -m "$model" --rows all --device cpu --shard $i/3 -o "$dir/shard$i.zst"
done
cat "$dir"/shard?.zst > "$dir/shards.zst"
status 0 "$lg" compare "$dir/prefill.q8.zst" "$dir/shards.zst"
echo "all checks passed"
