#!/usr/bin/env python3
"""Our engine against llama.cpp in one run: prefill and tokenwise decode on random weights of a real shape.

Needs a Python with llama-cpp-python (built natively) and this project's make_model and engine_bench:

    cmake --build build --target make_model engine_bench
    python3 tests/bench/against_llama_cpp.py build/tests --work /tmp/models

llama.cpp runs with its defaults but an F32 KV cache and no flash attention. Both engines use --threads threads and take
turns; a figure is the median over the rounds, a ratio that of the medians. Prefill: the last row's logits; decode: all.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time


def rival(path, n_prefill, n_decode, threads):
    """Runs in a process of its own: tokens a second of llama.cpp as JSON on stdout."""
    import ctypes
    import llama_cpp as L
    quiet = L.llama_log_callback(lambda level, text, data: None)
    L.llama_log_set(quiet, ctypes.c_void_p(0))
    L.llama_backend_init()
    model = L.llama_model_load_from_file(os.fsencode(path), L.llama_model_default_params())
    params = L.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = max(n_prefill, n_decode)
    params.n_threads = params.n_threads_batch = threads
    params.type_k = params.type_v = 0  # F32
    params.flash_attn_type = 0
    context = L.llama_init_from_model(model, params)
    n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    tokens = [random.Random(1).randrange(n_vocab) for _ in range(max(n_prefill, n_decode))]
    batch = L.llama_batch_init(n_prefill, 0, 1)

    def run(first, count, logits):
        for i in range(count):
            batch.token[i], batch.pos[i] = tokens[first + i], first + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i == count - 1 and logits
        batch.n_tokens = count
        if L.llama_decode(context, batch):
            sys.exit("llama_decode failed")
        L.llama_synchronize(context)

    def timed(work):
        L.llama_memory_clear(L.llama_get_memory(context), True)
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def decode():
        for i in range(n_decode):
            run(i, 1, True)

    result = {}
    for name, n, work in (("prefill", n_prefill, lambda: run(0, n_prefill, True)), ("decode", n_decode, decode)):
        timed(work)
        result[name] = n / statistics.median(timed(work) for _ in range(3))
    print(json.dumps(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", help="folder of make_model and engine_bench")
    parser.add_argument("--work", required=True, help="folder for the models (2.4 GB for F32)")
    parser.add_argument("--shape", default="qwen3-0.6b")
    parser.add_argument("--types", default="F32,Q8_0")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{args.shape}, {args.threads} threads, tok/s   {'llama.cpp':>10} {'logitgate':>10} {'ratio':>6}")
    for kind in args.types.split(","):
        model = os.path.join(args.work, f"{args.shape}.{kind}.gguf")
        if not os.path.exists(model):
            subprocess.run([os.path.join(args.tools, "make_model"), args.shape, kind, model], check=True)
        theirs, ours = [], []
        for _ in range(args.rounds):
            command = [sys.executable, __file__, "--rival", model, args.prefill, args.decode, args.threads]
            theirs.append(json.loads(subprocess.check_output(list(map(str, command)))))
            command = [os.path.join(args.tools, "engine_bench"), model, args.prefill, args.decode, 3, args.threads]
            ours.append(json.loads(subprocess.check_output(list(map(str, command)))))
        for phase in ("prefill", "decode"):
            a = statistics.median(r[phase] for r in theirs)
            b = statistics.median(r[phase] for r in ours)
            count = args.prefill if phase == "prefill" else args.decode
            print(f"{kind:5} {phase:8} {count:4} tokens           {a:10.1f} {b:10.1f} {b / a:6.2f}")


if sys.argv[1:2] == ["--rival"]:
    rival(sys.argv[2], *map(int, sys.argv[3:6]))
else:
    main()
