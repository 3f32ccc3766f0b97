#!/usr/bin/env python3
"""Makes the fixtures of this folder: `make_fixtures.py PATH/TO/logitgate` makes them again.

Every file is refused by every reader that its folder names, with one line and exit code 2 (tests/cli/must_fail.sh):
model/ by inspect and the engine, model_run/ by the engine alone (well-formed GGUF that is no model it computes), batch/ by all
readers of token batches, batch_run/ by the engine alone, array/ by import, dump/ by all readers of dumps.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10


def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def kv(key, kind, value):
    head = text(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + text(value)
    return head + struct.pack({U32: "<I", F32: "<f", BOOL: "<B", U64: "<Q"}[kind], value)


META = [
    ("general.architecture", STRING, "qwen3"), ("general.name", STRING, "tiny"),
    ("qwen3.block_count", U32, 1), ("qwen3.context_length", U32, 32), ("qwen3.embedding_length", U32, 32),
    ("qwen3.feed_forward_length", U32, 32), ("qwen3.attention.head_count", U32, 2),
    ("qwen3.attention.head_count_kv", U32, 1), ("qwen3.attention.key_length", U32, 16),
    ("qwen3.attention.value_length", U32, 16), ("qwen3.rope.freq_base", F32, 1e6),
    ("qwen3.attention.layer_norm_rms_epsilon", F32, 1e-6),
]
TENSORS = [
    ("token_embd.weight", [32, 16]), ("output_norm.weight", [32]),
    ("blk.0.attn_norm.weight", [32]), ("blk.0.attn_q.weight", [32, 32]), ("blk.0.attn_k.weight", [32, 16]),
    ("blk.0.attn_v.weight", [32, 16]), ("blk.0.attn_q_norm.weight", [16]), ("blk.0.attn_k_norm.weight", [16]),
    ("blk.0.attn_output.weight", [32, 32]), ("blk.0.ffn_norm.weight", [32]),
    ("blk.0.ffn_gate.weight", [32, 32]), ("blk.0.ffn_up.weight", [32, 32]), ("blk.0.ffn_down.weight", [32, 32]),
]


def tensor_info(name, ne, kind=0, offset=0):
    return text(name) + struct.pack("<I", len(ne)) + b"".join(struct.pack("<Q", n) for n in ne) + struct.pack("<IQ", kind, offset)


def gguf(meta=META, tensors=TENSORS, magic=b"GGUF", version=3, n_tensors=None, n_kv=None, raw_kv=b"", raw_infos=None, data=None):
    kvs = b"".join(kv(*m) for m in meta) + raw_kv
    infos, offset = b"", 0
    for name, ne in tensors:
        infos += tensor_info(name, ne, 0, offset)
        size = 4
        for n in ne:
            size *= n
        offset += (size + 31) // 32 * 32
    if raw_infos is not None:
        infos = raw_infos
    head = magic + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors, len(meta) if n_kv is None else n_kv)
    head += kvs + infos
    head += b"\0" * (-len(head) % 32)
    # Weights of a power of two, so that the file compresses well in the repository.
    return head + (struct.pack("<f", 0.125) * (offset // 4) if data is None else data)


def without(name):
    return [t for t in TENSORS if t[0] != name]


def reshaped(name, ne):
    return [(n, ne if n == name else s) for n, s in TENSORS]


def with_meta(key, kind, value):
    return [(k, kind, value) if k == key else (k, t, v) for k, t, v in META]


def models():
    def gguf(tensors=TENSORS[:2], **changes):  # few tensors: small files
        return globals()["gguf"](tensors=tensors, **changes)

    good = gguf()
    n = len(META)
    yield "empty.gguf", b""
    yield "wrong_magic.gguf", gguf(magic=b"GGUX")
    yield "magic_alone.gguf", b"GGUF"
    yield "version_1.gguf", gguf(version=1)
    yield "version_9.gguf", gguf(version=9)
    yield "big_endian.gguf", b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + b"\0" * 64
    yield "cut_in_metadata.gguf", good[:200]
    yield "cut_in_tensor_list.gguf", good[:good.index(b"output_norm") + 4]
    yield "cut_in_data.gguf", good[:-1024]
    yield "tensor_count_2e60.gguf", gguf(n_tensors=1 << 60)
    yield "metadata_count_2e60.gguf", gguf(n_kv=1 << 60)
    yield "key_length_2e63.gguf", gguf(n_kv=n + 1, raw_kv=struct.pack("<Q", 1 << 63) + b"x" * 64)
    yield "string_length_2e63.gguf", gguf(n_kv=n + 1, raw_kv=text("x.y") + struct.pack("<IQ", STRING, 1 << 63) + b"x" * 64)
    yield "array_length_2e60.gguf", gguf(n_kv=n + 1, raw_kv=text("x.y") + struct.pack("<IIQ", ARRAY, U64, 1 << 60))
    yield "array_of_strings_2e40.gguf", gguf(n_kv=n + 1, raw_kv=text("x.y") + struct.pack("<IIQ", ARRAY, STRING, 1 << 40))
    nested = b"".join(struct.pack("<IQ", ARRAY, 1) for _ in range(5000))
    yield "array_nested_5000.gguf", gguf(n_kv=n + 1, raw_kv=text("x.y") + struct.pack("<I", ARRAY) + nested)
    yield "value_type_99.gguf", gguf(n_kv=n + 1, raw_kv=text("x.y") + struct.pack("<IQ", 99, 0))
    yield "duplicate_key.gguf", gguf(meta=META + [META[1]])
    yield "alignment_0.gguf", gguf(meta=META + [("general.alignment", U32, 0)])
    yield "alignment_2e31.gguf", gguf(meta=META + [("general.alignment", U32, 1 << 31)])
    one = lambda *a, **k: gguf(n_tensors=1, raw_infos=tensor_info(*a, **k))
    yield "offset_past_end.gguf", one("t", [32, 32], 0, 1 << 20)
    yield "offset_overflow.gguf", one("t", [32, 32], 0, (1 << 64) - 32)
    yield "offset_unaligned.gguf", one("t", [32, 32], 0, 4)
    yield "dimensions_overflow.gguf", one("t", [1 << 32, 1 << 32])
    yield "dimensions_overflow_bytes.gguf", one("t", [1 << 40, 1 << 22])
    yield "dimension_zero.gguf", one("t", [0, 32])
    yield "dimension_negative.gguf", one("t", [(1 << 64) - 1])
    yield "row_not_whole_blocks.gguf", one("t", [33, 2], 8)
    yield "tensor_type_999.gguf", one("t", [32, 32], 999)
    yield "n_dimensions_2e32.gguf", gguf(n_tensors=1, raw_infos=text("t") + struct.pack("<I", 0xFFFFFFFF) + b"\1" * 64)
    yield "n_dimensions_0.gguf", gguf(n_tensors=1, raw_infos=text("t") + struct.pack("<IIQ", 0, 0, 0))
    yield "tensor_name_2e63.gguf", gguf(n_tensors=1, raw_infos=struct.pack("<Q", 1 << 63) + b"t" * 64)
    yield "duplicate_tensor.gguf", gguf(n_tensors=2, raw_infos=tensor_info("t", [32]) * 2)
    yield "overlapping_tensors.gguf", gguf(n_tensors=2, raw_infos=tensor_info("t", [32]) + tensor_info("u", [32], 0, 96))
    yield "unnamed_tensor.gguf", one("", [32])
    yield "tensor_type_removed.gguf", one("t", [32, 32], 31)
    yield "dimensions_5.gguf", one("t", [2, 2, 2, 2, 2])
    yield "empty_key.gguf", gguf(meta=META + [("", U32, 0)])
    yield "alignment_text.gguf", gguf(meta=META + [("general.alignment", STRING, "32")])
    yield "bool_2.gguf", gguf(n_kv=n + 1, raw_kv=text("x.y") + struct.pack("<IB", BOOL, 2))
    yield "name_with_newline.gguf", one("a\nb\x1b[31m", [33, 2], 8)
    yield "no_architecture.gguf", gguf(meta=META[1:])
    yield "renamed_part.gguf", gguf(meta=META + [("split.no", U32, 0), ("split.count", U32, 2)])
    yield "second_part.gguf", gguf(meta=META + [("split.no", U32, 1), ("split.count", U32, 2)])
    yield "part-00001-of-00002.gguf", gguf(meta=META + [("split.no", U32, 0), ("split.count", U32, 2), ("split.tensors.count", U32, 4)])


def models_run():
    yield "unknown_architecture.gguf", gguf(meta=with_meta("general.architecture", STRING, "wondernet"))
    for tensor in ("token_embd.weight", "blk.0.attn_k.weight", "output_norm.weight", "blk.0.attn_q_norm.weight"):
        yield "missing_%s.gguf" % tensor, gguf(tensors=without(tensor))
    yield "wrong_shape_ffn_down.gguf", gguf(tensors=reshaped("blk.0.ffn_down.weight", [32, 16]))
    yield "wrong_shape_norm.gguf", gguf(tensors=reshaped("blk.0.attn_norm.weight", [64]))
    yield "wrong_rank.gguf", gguf(tensors=reshaped("blk.0.attn_q.weight", [32, 8, 4]))
    yield "no_block_count.gguf", gguf(meta=[m for m in META if m[0] != "qwen3.block_count"])
    yield "block_count_2e31.gguf", gguf(meta=with_meta("qwen3.block_count", U32, 1 << 31))
    yield "block_count_text.gguf", gguf(meta=with_meta("qwen3.block_count", STRING, "one"))
    yield "head_count_0.gguf", gguf(meta=with_meta("qwen3.attention.head_count", U32, 0))
    yield "head_count_uneven.gguf", gguf(meta=with_meta("qwen3.attention.head_count_kv", U32, 3))
    yield "embedding_length_2e32.gguf", gguf(meta=with_meta("qwen3.embedding_length", U64, 1 << 32))
    yield "epsilon_nan.gguf", gguf(meta=with_meta("qwen3.attention.layer_norm_rms_epsilon", F32, float("nan")))
    yield "rope_scaling_unknown.gguf", gguf(meta=META + [("qwen3.rope.scaling.type", STRING, "spiral")])
    yield "no_tensors.gguf", gguf(tensors=[])


def zstd_repeat(byte, n):
    """A zstd frame of n times 128 KiB of one byte, as run-length blocks of four bytes each."""
    blocks = [struct.pack("<I", 131072 << 3 | 1 << 1 | (i == n - 1))[:3] + byte for i in range(n)]
    return b"\x28\xb5\x2f\xfd" + b"\x00\x38" + b"".join(blocks)


def zstd_stored(data, last=True):
    """A zstd frame that holds data in one stored block."""
    return b"\x28\xb5\x2f\xfd" + b"\x00\x38" + struct.pack("<I", len(data) << 3 | last)[:3] + data


def batches():
    good = b'{"id": "a", "tokens": [1, 2, 3]}\n'
    yield "empty.jsonl", b""
    yield "blank_lines.jsonl", b"\n \n\t\n"
    yield "not_json.jsonl", b"hello\n"
    yield "array_line.jsonl", b"[1, 2, 3]\n"
    yield "cut_line.jsonl", good + b'{"id": "b", "tokens": [1, 2'
    yield "two_objects.jsonl", b'{"tokens": [1]} {"tokens": [2]}\n'
    yield "no_tokens.jsonl", b'{"id": "a"}\n'
    yield "tokens_text.jsonl", b'{"id": "a", "tokens": "1 2 3"}\n'
    yield "tokens_empty.jsonl", good + b'{"id": "b", "tokens": []}\n'
    yield "tokens_null.jsonl", b'{"id": "b", "tokens": null}\n'
    yield "token_negative.jsonl", b'{"id": "a", "tokens": [1, -2]}\n'
    yield "token_fraction.jsonl", b'{"id": "a", "tokens": [1, 2.5]}\n'
    yield "token_text.jsonl", b'{"id": "a", "tokens": [1, "2"]}\n'
    yield "token_nested.jsonl", b'{"id": "a", "tokens": [[1, 2]]}\n'
    yield "token_2e31.jsonl", b'{"id": "a", "tokens": [2147483648]}\n'
    yield "token_2e64.jsonl", b'{"id": "a", "tokens": [18446744073709551616]}\n'
    yield "duplicate_id.jsonl", good + b'{"id": "b", "tokens": [1]}\n' + good
    yield "duplicate_default_id.jsonl", b'{"id": "1", "tokens": [1]}\n{"tokens": [2]}\n'
    yield "id_object.jsonl", b'{"id": {"a": 1}, "tokens": [1]}\n'
    yield "id_fraction.jsonl", b'{"id": 1.5, "tokens": [1]}\n'
    yield "two_names.jsonl", b'{"id": "a", "tokens": [1], "input_ids": [2]}\n'
    yield "nested_100000.jsonl", b'{"id": "a", "x": ' + b"[" * 100000 + b"]" * 100000 + b', "tokens": [1]}\n'
    yield "unclosed_100000.jsonl", b'{"id": "a", "x": ' + b"[" * 100000 + b"\n"
    yield "bad_utf8.jsonl", b'{"id": "\xff\xfe", "tokens": [1]}\n'
    yield "nul_bytes.jsonl", b"\0" * 64 + b"\n"
    yield "trailing_comma.jsonl", b'{"id": "a", "tokens": [1, 2, ]}\n'
    yield "not_zstd.jsonl.zst", b"\x28\xb5\x2f\xfd" + b"\xff" * 40
    yield "zstd_cut_in_block.jsonl.zst", zstd_stored(good)[:-3]
    yield "zstd_cut_between_blocks.jsonl.zst", zstd_stored(good, last=False)
    yield "zstd_then_text.jsonl.zst", zstd_stored(good) + good
    yield "zstd_bomb_one_line.jsonl.zst", zstd_repeat(b"[", 1024)
    yield "zstd_bomb_blank_lines.jsonl.zst", zstd_repeat(b"\n", 1024)
    yield "gzip.jsonl.gz", b"\x1f\x8b\x08\x00" + b"\0" * 16
    yield "utf16.jsonl", '\ufeff{"tokens": [1]}\n'.encode("utf-16-le")
    yield "surrogate.jsonl", b'{"id": "\xed\xa0\x80", "tokens": [1]}\n'
    yield "lone_escape.jsonl", b'{"id": "\\ud800", "tokens": [1]}\n'
    yield "id_empty.jsonl", b'{"id": "", "tokens": [1]}\n'
    yield "id_null.jsonl", b'{"id": null, "tokens": [1]}\n'
    yield "id_twice.jsonl", b'{"id": "a", "id": "b", "tokens": [1]}\n'
    yield "tokens_twice.jsonl", b'{"tokens": [1], "tokens": [2]}\n'
    yield "token_exponent.jsonl", b'{"tokens": [1e2]}\n'
    yield "token_leading_zero.jsonl", b'{"tokens": [01]}\n'
    yield "bad_ignored_field.jsonl", b'{"tokens": [1], "x": [tru]}\n'
    yield "control_character.jsonl", b'{"tokens": [1], "x": "a\tb"}\n'


def batches_run():
    yield "token_outside_vocabulary.jsonl", b'{"id": "a", "tokens": [1, 272]}\n'
    yield "too_long.jsonl", json.dumps({"id": "a", "tokens": [1] * 20000}).encode() + b"\n"


def npy(descr="<f4", fortran=False, shape="(8, 272)", data=b"\0" * (8 * 272 * 4), magic=b"\x93NUMPY", version=b"\1\0", header=None, length=None):
    if header is None:
        header = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)
    header = header.encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return magic + version + struct.pack("<H", len(header) if length is None else length) + header + data


def arrays():
    yield "empty.npy", b""
    yield "wrong_magic.npy", npy(magic=b"\x93NUMPX")
    yield "version_9.npy", npy(version=b"\x09\0")
    yield "cut_in_header.npy", npy()[:40]
    yield "cut_in_data.npy", npy()[:-100]
    yield "more_data.npy", npy(data=b"\0" * (8 * 272 * 4 + 4))
    yield "header_past_end.npy", npy(length=65535, data=b"")
    yield "header_not_a_dict.npy", npy(header="[1, 2, 3]")
    yield "header_no_shape.npy", npy(header="{'descr': '<f4', 'fortran_order': False, }")
    yield "header_code.npy", npy(header="__import__('os').abort()")
    yield "fortran_order.npy", npy(fortran=True)
    yield "big_endian.npy", npy(descr=">f4")
    yield "objects.npy", npy(descr="|O")
    yield "integers.npy", npy(descr="<i4")
    yield "shape_overflow.npy", npy(shape="(4294967296, 4294967296)")
    yield "shape_2e60.npy", npy(shape="(1152921504606846976, 272)")
    yield "shape_negative.npy", npy(shape="(-8, 272)")
    yield "shape_zero.npy", npy(shape="(0, 272)", data=b"")
    yield "shape_scalar.npy", npy(shape="()", data=b"\0" * 4)
    yield "shape_one_dimension.npy", npy(shape="(2176,)")
    yield "shape_three_dimensions.npy", npy(shape="(2, 4, 272)")
    yield "shape_2e64.npy", npy(shape="(18446744073709551616, 272)")
    yield "header_2e32.npy", b"\x93NUMPY\2\0" + struct.pack("<I", 0xFFFFFFFF) + b"{" * 64
    yield "records.npy", npy(header="{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (8, 272), }")
    yield "archive.npz", b"PK\3\4" + b"\0" * 60
    yield "rows_fit_nothing.npy", npy(shape="(7, 272)", data=b"\0" * (7 * 272 * 4))


def flip(content, at):
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1:]


def frames(content):
    """Where the zstd frames of a dump begin: at each magic number, skippable ones included."""
    return [i for i in range(len(content) - 3) if content[i:i + 4] in (b"\x28\xb5\x2f\xfd", b"\x5e\x2a\x4d\x18")]


def make_dump(program, folder, ids, n_vocab):
    """A dump of 4 tokens a record: every logit another float."""
    tokens, logits, out = (os.path.join(folder, name) for name in ("t.jsonl", "l.npy", "o.zst"))
    with open(tokens, "w") as f:
        for i in ids:
            f.write(json.dumps({"id": i, "tokens": [1, 2, 3, 4]}) + "\n")
    n = len(ids) * 4 * n_vocab
    with open(logits, "wb") as f:
        values = b"".join(struct.pack("<f", (i * 2654435761 % 4093) / 256 - 8) for i in range(n))
        f.write(npy(shape="(%d, %d)" % (len(ids) * 4, n_vocab), data=values))
    subprocess.run([program, "import", logits, "--tokens", tokens, "-f", "-o", out], check=True)
    with open(out, "rb") as f:
        return f.read()


def dumps(program):
    with tempfile.TemporaryDirectory() as folder:
        good = make_dump(program, folder, ["a", "b", "c"], 32)
        other_vocab = make_dump(program, folder, ["d"], 33)
        more = make_dump(program, folder, ["e", "f"], 32)
        with open(os.path.join(folder, "zeros"), "wb") as f:
            f.truncate(1 << 30)
        bomb = subprocess.run(["zstd", "-q", "-19", "-c", f.name], check=True, stdout=subprocess.PIPE).stdout
    starts = frames(good)
    yield "empty.zst", b""
    yield "zeros.zst", b"\0" * 256
    yield "text.zst", b"not a dump\n"
    yield "bomb.zst", bomb
    yield "header_alone.zst", good[:starts[1]]
    for i, start in enumerate(starts[1:], 1):
        yield "cut_before_frame_%02d.zst" % i, good[:start]
        yield "cut_in_frame_%02d.zst" % i, good[:(start + (starts + [len(good)])[i + 1]) // 2]
    for i, start in enumerate(starts):
        yield "flip_in_frame_%02d.zst" % i, flip(good, (start + (starts + [len(good)])[i + 1]) // 2)
    yield "cut_last_byte.zst", good[:-1]
    yield "flip_first_byte.zst", flip(good, 0)
    yield "flip_last_byte.zst", flip(good, len(good) - 1)
    yield "garbage_after.zst", good + b"garbage"
    yield "frame_missing.zst", good[:starts[2]] + good[starts[3]:]
    yield "frames_swapped.zst", good[:starts[1]] + good[starts[3]:starts[5]] + good[starts[1]:starts[3]] + good[starts[5]:]
    yield "record_twice.zst", good + good
    yield "segments_of_two_vocabularies.zst", good + other_vocab
    yield "second_segment_cut.zst", good + more[:frames(more)[3]]


program = os.path.abspath(sys.argv[1])
os.chdir(os.path.dirname(os.path.abspath(__file__)))
for folder, make in (("model", models), ("model_run", models_run), ("batch", batches), ("batch_run", batches_run), ("array", arrays), ("dump", lambda: dumps(program))):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, content in make():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content)
