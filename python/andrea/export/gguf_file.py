"""A .gguf file that stock llama.cpp runs: architecture gpt2, our vocabulary as its `rwkv` tokenizer.

Its gpt2 wants biases, which are written as zeros; Q, K and V are one matrix; without `output.weight` the head
is the token embedding. Vectors and positions stay float32 in every type, as llama.cpp's own converter does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from andrea.checkpoint import Floats
from andrea.errors import ConfigError, DataError
from andrea.export.layout import ModelShape
from andrea.export.libraries import need
from andrea.export.placing import new_file
from andrea.export.source import Trained

LAYER_NORM_EPS = 1e-5
LARGEST_HALF = 65504.0  # float16
BLOCK = 32  # values of a row that share a scale in q8_0
MARK = "andrea.name"
_VECTORS = {"ln1.gamma": "attn_norm.weight", "ln1.beta": "attn_norm.bias"} | {
    "ln2.gamma": "ffn_norm.weight",
    "ln2.beta": "ffn_norm.bias",
}
_MATRICES = {"w_o": "attn_output", "w_1": "ffn_up", "w_2": "ffn_down"}


def gguf_tensors(shape: ModelShape, ours: dict[str, Floats]) -> dict[str, Floats]:
    """Return the tensors of llama.cpp's gpt2; matrices are [out, in] as ours."""
    made = {"token_embd.weight": ours["tok_embed"], "position_embd.weight": ours["pos_embed"]}
    for index in range(shape.n_layer):
        layer, theirs = f"layers.{index}.", f"blk.{index}."
        for name, other in _VECTORS.items():
            made[theirs + other] = ours[layer + name]
        made[theirs + "attn_qkv.weight"] = np.concatenate([ours[layer + w] for w in ("w_q", "w_k", "w_v")])
        made[theirs + "attn_qkv.bias"] = np.zeros(3 * shape.d_model, np.float32)
        for name, other in _MATRICES.items():
            made[theirs + other + ".weight"] = ours[layer + name]
            made[theirs + other + ".bias"] = np.zeros(ours[layer + name].shape[0], np.float32)
    made["output_norm.weight"], made["output_norm.bias"] = ours["lnf.gamma"], ours["lnf.beta"]
    if not shape.tie_embeddings:
        made["output.weight"] = ours["head"]
    return made


def kept_type(name: str, tensor: Floats, dtype: str) -> str:
    """Return the type that a tensor gets under `dtype`: f32, f16 or q8_0."""
    if tensor.ndim == 1 or name == "position_embd.weight":
        return "f32"
    return "f16" if dtype == "q8_0" and tensor.shape[-1] % BLOCK else dtype


def export_gguf(trained: Trained, path: Path, dtype: str, force: bool, licence: str | None) -> list[str]:
    """Write the file; returns what a user should know of it.

    ConfigError without a tokenizer, DataError for a value that the type does not hold.
    """
    from andrea.tokenizer.export_gguf import vocabulary_keys

    gguf = need("gguf")
    if trained.tokenizer is None:
        raise ConfigError(
            f"{trained.checkpoint}: its experiment names no tokenizer, and llama.cpp needs one; --format hf "
            "and safetensors do without"
        )
    vocabulary = vocabulary_keys(trained.tokenizer)
    smaller = []
    with new_file(path, force, lambda old: is_export_of(old, trained.name)) as temporary:
        writer = gguf.GGUFWriter(temporary, "gpt2")
        _describe(writer, gguf, trained, dtype, licence)
        _add_vocabulary(writer, vocabulary)
        for name, tensor in gguf_tensors(trained.shape, trained.tensors).items():
            kept = kept_type(name, tensor, dtype)
            if kept != dtype and tensor.ndim > 1 and kept == "f16":
                smaller.append(name)
            _add_tensor(writer, gguf, name, tensor, kept)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    if smaller:
        return [f"{len(smaller)} matrices stay f16: their rows are no multiple of {BLOCK}, as q8_0 needs"]
    return []


def _describe(writer: Any, gguf: Any, trained: Trained, dtype: str, licence: str | None) -> None:
    from andrea._core import VERSION

    shape = trained.shape
    writer.add_string(MARK, trained.name)
    writer.add_string("andrea.version", VERSION)
    writer.add_uint32("andrea.step", trained.step)
    writer.add_uint64("andrea.parameters", shape.n_params)
    writer.add_name(trained.name)
    if licence is not None:
        writer.add_license(licence)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.d_model)
    writer.add_feed_forward_length(4 * shape.d_model)
    writer.add_block_count(shape.n_layer)
    writer.add_head_count(shape.n_head)
    writer.add_layer_norm_eps(LAYER_NORM_EPS)
    kinds = gguf.LlamaFileType
    writer.add_file_type({"f32": kinds.ALL_F32, "f16": kinds.MOSTLY_F16, "q8_0": kinds.MOSTLY_Q8_0}[dtype])
    if dtype == "q8_0":
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _add_vocabulary(writer: Any, keys: dict[str, Any]) -> None:
    writer.add_tokenizer_model(keys["tokenizer.ggml.model"])
    writer.add_token_list(keys["tokenizer.ggml.tokens"])
    writer.add_token_types(keys["tokenizer.ggml.token_type"])
    writer.add_bos_token_id(keys["tokenizer.ggml.bos_token_id"])
    writer.add_eos_token_id(keys["tokenizer.ggml.eos_token_id"])
    writer.add_pad_token_id(keys["tokenizer.ggml.bos_token_id"])
    writer.add_add_bos_token(keys["tokenizer.ggml.add_bos_token"])
    writer.add_add_eos_token(keys["tokenizer.ggml.add_eos_token"])


def _add_tensor(writer: Any, gguf: Any, name: str, tensor: Floats, kept: str) -> None:
    plain = np.ascontiguousarray(tensor, dtype=np.float32)
    if kept == "f32":
        writer.add_tensor(name, plain)
        return
    # q8_0 has a float16 scale for each block: the largest value over 127.
    largest = float(np.abs(plain).max()) / (127 if kept == "q8_0" else 1)
    if largest > LARGEST_HALF:
        raise DataError(f"{name} holds values that {kept} cannot; export as f32")
    if kept == "f16":
        writer.add_tensor(name, plain.astype(np.float16))
        return
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor(name, gguf.quants.quantize(plain, kind), raw_dtype=kind)


def is_export_of(path: Path, name: str) -> bool:
    """Return whether a file is a GGUF of ours of this model: the mark stands before the vocabulary."""
    import struct

    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    value = struct.pack("<IQ", 8, len(name)) + name.encode()  # 8: the type of a string
    return head.startswith(b"GGUF") and MARK.encode() + value in head
