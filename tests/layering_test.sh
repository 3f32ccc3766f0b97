#!/usr/bin/env bash
# Who may include whom: cmd everything; lib → lib, formats; formats → formats, lib/error.h; kernels → kernels,
# lib/{error,tensor,token_batch,backend}.h, formats/quant; kernels/backends.h only cmd and tests; CUDA headers only kernels/cuda.
# Contract: `layering_test.sh ROOT` prints every include that breaks a rule and exits 1, or 0 where there is none. With
# --self-test it first makes a tree that breaks each rule once and expects each to be found.
set -euo pipefail

# Includes of our own layers and of CUDA in a folder, as FILE:LINE:TARGET.
includes() {
  [[ -d $1 ]] || return 0
  grep -rnE --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' --include='*.def' --include='*.inc' \
    '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]' "$1" |
    sed -E 's/^([^:]*:[0-9]*):[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]([^>"]*)[>"].*/\1:\2/' || true
}

# Reports what `folder` includes of the layers (and relative paths, which would hide one) beyond the pattern `allowed`.
check() { # folder, allowed pattern
  includes "$1" | grep -E ':((cmd|lib|formats|kernels|tests)/|\.\.?/)[^:]*$' | grep -vE ":($2)\$" |
    sed "s|\$|  ($1 may not include this)|" || true
}

check_cuda() {
  local folder
  for folder in cmd lib formats kernels; do
    includes "$folder" | grep -v '^kernels/cuda/' | grep -E ':(cuda|cublas|cudnn|nvrtc|nccl)[A-Za-z0-9_]*\.h(pp)?$' |
      sed 's/$/  (only kernels\/cuda includes CUDA headers)/' || true
  done
}

violations() { # root
  cd "$1"
  check cmd '(cmd|lib|formats|kernels)/.*'
  check lib '(lib|formats)/.*'
  check formats '(formats/.*|lib/error\.h)'
  check kernels '(kernels/.*|lib/(error|tensor|token_batch|backend)\.h|formats/quant/.*)'
  check_cuda
}

self_test() {
  local expected
  root=$(mktemp -d)  # not local: the trap needs it
  trap 'rm -rf "$root"' EXIT
  mkdir -p "$root"/{cmd,lib,formats,kernels/cuda}
  echo '#include "tests/helper.h"' >"$root/cmd/a.cc"
  printf '#include "kernels/backends.h"\n#include "cmd/options.h"\n#include "lib/ok.h"\n' >"$root/lib/a.cc"
  printf '#include "lib/tensor.h"\n#include "lib/error.h"\n#  include "../lib/model.h"\n' >"$root/formats/a.h"
  printf '#include "lib/model.h"\n#include "formats/gguf.h"\n#include <cuda_runtime.h>\n' >"$root/kernels/a.cc"
  printf '#include <cuda_runtime.h>\n#include "formats/quant/q8_0.h"\n' >"$root/kernels/cuda/a.cu"
  expected=8
  local found
  found=$(violations "$root" | wc -l)
  if [[ $found -ne $expected ]]; then
    echo "self-test: $expected planted violations, $found found:"
    violations "$root"
    exit 1
  fi
}

if [[ ${1-} == --self-test ]]; then
  shift
  (self_test)
fi
found=$(violations "${1:?usage: layering_test.sh [--self-test] ROOT}")
if [[ -n $found ]]; then
  printf '%s\n' "$found"
  exit 1
fi
