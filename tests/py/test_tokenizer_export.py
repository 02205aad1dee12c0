"""Exports give the very ids of the native encoder: Hugging Face tokenizers, and a stock llama.cpp."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from andrea.tokenizer import Tokenizer
from andrea.tokenizer.export_gguf import gguf_bytes, spelling, vocabulary_keys, write_gguf_vocabulary
from andrea.tokenizer.export_json import BOS_SURFACE, split_regex, write_tokenizer_json
from tokenizer_cases import LANGUAGES, NASTY, random_texts, small_tokenizer, source_text, topics

ODD = ["x\ny", ") ", "a b c", "\r\n", "\n    ", "]^-\\", "the", "then", "thenc", "\u0301", "é", "  ", "#["]


def texts() -> list[str]:
    """Thousands of real and hostile texts."""
    real = [text[i : i + 400] for text in (topics(), source_text()) for i in range(0, len(text), 997)]
    runs = [
        char * n + after for char in " \n\t-=_\u00a0—─" for n in range(1, 40) for after in ("", "word", "\n")
    ]
    odd = ["".join(ODD[(i * k) % len(ODD)] for k in range(7)) for i in range(200)]
    return [*NASTY, *LANGUAGES.values(), *real, *runs, *odd, *random_texts(2500, seed=3)]


@pytest.mark.parametrize("which", ["trained", "odd", "empty"])
def test_hugging_face_ids_are_equal(tmp_path: Path, which: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    native = {
        "trained": small_tokenizer,
        "odd": lambda: Tokenizer.from_segments(ODD),
        "empty": lambda: Tokenizer.from_segments([]),
    }[which]()
    write_tokenizer_json(native, tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.get_vocab_size() == native.vocab_size
    cases = texts()
    assert len(cases) > 4000
    wrong = []
    for text, encoding in zip(cases, theirs.encode_batch(cases, add_special_tokens=True), strict=True):
        same_ids = encoding.ids == native.encode(text).tolist()
        if not same_ids or theirs.decode(encoding.ids, skip_special_tokens=False) != text:
            wrong.append(text)
    assert wrong == []


def test_bos_is_no_added_token(tmp_path: Path) -> None:
    write_tokenizer_json(small_tokenizer(), tmp_path, context=1024)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert content["added_tokens"] == []
    assert content["model"]["vocab"][BOS_SURFACE] == 256
    assert config["clean_up_tokenization_spaces"] is False
    assert "bos_token" not in config


def test_split_regex_in_python() -> None:
    tokenizer = small_tokenizer()
    pattern = re.compile(split_regex(tokenizer))
    for text in [*NASTY[:-1], *random_texts(200, seed=4)]:
        pieces = [match.group().encode() for match in pattern.finditer(text)]
        ids = [i for piece in pieces for i in tokenizer.encode(piece).tolist()]
        assert ids == tokenizer.encode(text).tolist()


def test_spelling() -> None:
    assert spelling("a\\\n é".encode()) == rb"a\x5c\x0a \xc3\xa9"
    assert vocabulary_keys(small_tokenizer())["tokenizer.ggml.tokens"][256] == rb"\xff\xff"  # type: ignore[index]


def test_gguf_is_read_by_its_own_library(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    write_gguf_vocabulary(small_tokenizer(), tmp_path / "v.gguf")
    reader = gguf.GGUFReader(tmp_path / "v.gguf")
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    assert len(tokens) == small_tokenizer().vocab_size
    assert reader.fields["tokenizer.ggml.model"].contents() == "rwkv"


def _random_model(tokenizer: Tokenizer, path: Path) -> None:
    """A GPT-2 of one tiny layer of random weights, for a server to load with our vocabulary."""
    gguf = pytest.importorskip("gguf")
    width, context = 32, 64
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(4 * width)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_layer_norm_eps(1e-5)
    keys = vocabulary_keys(tokenizer)
    writer.add_tokenizer_model(keys["tokenizer.ggml.model"])
    writer.add_token_list(keys["tokenizer.ggml.tokens"])
    writer.add_token_types(keys["tokenizer.ggml.token_type"])
    writer.add_bos_token_id(tokenizer.bos)
    writer.add_eos_token_id(tokenizer.bos)
    writer.add_add_bos_token(True)
    shapes = {
        "token_embd.weight": (tokenizer.vocab_size, width),
        "position_embd.weight": (context, width),
        "output_norm.weight": (width,),
        "output_norm.bias": (width,),
        "output.weight": (tokenizer.vocab_size, width),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.attn_norm.bias": (width,),
        "blk.0.attn_qkv.weight": (3 * width, width),
        "blk.0.attn_qkv.bias": (3 * width,),
        "blk.0.attn_output.weight": (width, width),
        "blk.0.attn_output.bias": (width,),
        "blk.0.ffn_norm.weight": (width,),
        "blk.0.ffn_norm.bias": (width,),
        "blk.0.ffn_up.weight": (4 * width, width),
        "blk.0.ffn_up.bias": (4 * width,),
        "blk.0.ffn_down.weight": (width, 4 * width),
        "blk.0.ffn_down.bias": (width,),
    }
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(name, rng.normal(0, 0.02, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_llama_cpp_ids_are_equal(tmp_path: Path) -> None:
    xllamacpp = pytest.importorskip("xllamacpp")
    native = small_tokenizer()
    _random_model(native, tmp_path / "m.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(tmp_path / "m.gguf")
    params.n_ctx = 64
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.warmup = False
    server = xllamacpp.Server(params)

    def ids_of(text: str) -> list[int]:
        body = json.dumps({"content": text, "add_special": False, "parse_special": False}).encode()
        request = urllib.request.Request(
            f"{server.listening_address}/tokenize", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return [int(i) for i in json.load(answer)["tokens"]]

    assert [text for text in texts() if ids_of(text) != native.encode(text).tolist()] == []


def test_gguf_bytes_hold_every_kind_of_value() -> None:
    content = gguf_bytes({"a": True, "b": 7, "c": "x", "d": [b"p", b"q"], "e": [1, 2]})
    assert content[:4] == b"GGUF"
    assert content.count(b"\x01\x00\x00\x00\x00\x00\x00\x00p") == 1
