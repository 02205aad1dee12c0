"""A folder that stock `transformers` loads as GPT2LMHeadModel.

Its linear layers are "Conv1D": weights [in, out], the transpose of ours, with Q, K and V side by side in
`c_attn`. They have biases, which are written as zeros. GELU in the tanh form is called "gelu_new" there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from andrea.checkpoint import Floats
from andrea.export.card import card, data_manifest
from andrea.export.layout import ModelShape
from andrea.export.libraries import need
from andrea.export.placing import new_folder
from andrea.export.source import Trained, data_sources
from andrea.export.tensors_file import as_type, write_tensors

BOS = 256
LAYER_NORM_EPS = 1e-5
WEIGHTS = "model.safetensors"
MANIFEST = "andrea_manifest.json"
SEGMENTS = "harris_segments.json"
# Ours, [out, in], and theirs, [in, out].
MATRICES = {"w_o": "attn.c_proj", "w_1": "mlp.c_fc", "w_2": "mlp.c_proj"}
VECTORS = {
    "ln1.gamma": "ln_1.weight",
    "ln1.beta": "ln_1.bias",
    "ln2.gamma": "ln_2.weight",
    "ln2.beta": "ln_2.bias",
}
PREFIX = "transformer."


def hugging_face_tensors(shape: ModelShape, ours: dict[str, Floats]) -> dict[str, Floats]:
    """Return the tensors of GPT2LMHeadModel; `lm_head.weight` only where the head is not tied."""
    d = shape.d_model
    made = {PREFIX + "wte.weight": ours["tok_embed"], PREFIX + "wpe.weight": ours["pos_embed"]}
    for index in range(shape.n_layer):
        layer, theirs = f"layers.{index}.", f"{PREFIX}h.{index}."
        for name, other in VECTORS.items():
            made[theirs + other] = ours[layer + name]
        made[theirs + "attn.c_attn.weight"] = np.concatenate(
            [ours[layer + w] for w in ("w_q", "w_k", "w_v")]
        ).T
        made[theirs + "attn.c_attn.bias"] = np.zeros(3 * d, np.float32)
        for name, other in MATRICES.items():
            matrix = ours[layer + name]
            made[theirs + other + ".weight"] = matrix.T
            made[theirs + other + ".bias"] = np.zeros(matrix.shape[0], np.float32)
    made[PREFIX + "ln_f.weight"], made[PREFIX + "ln_f.bias"] = ours["lnf.gamma"], ours["lnf.beta"]
    if not shape.tie_embeddings:
        made["lm_head.weight"] = ours["head"]
    return made


def special_ids(shape: ModelShape) -> dict[str, int | None]:
    """Return BOS, EOS and padding: all 256, which stands between documents in training, if there is one."""
    bos = BOS if shape.vocab_size > BOS else None
    return {"bos_token_id": bos, "eos_token_id": bos, "pad_token_id": bos}


def model_config(shape: ModelShape, dtype: str) -> dict[str, Any]:
    """Return config.json."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": shape.vocab_size,
        "n_positions": shape.context,
        "n_embd": shape.d_model,
        "n_layer": shape.n_layer,
        "n_head": shape.n_head,
        "n_inner": 4 * shape.d_model,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": LAYER_NORM_EPS,
        "tie_word_embeddings": shape.tie_embeddings,
        "scale_attn_weights": True,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "dtype": "float32" if dtype == "f32" else "float16",
        **special_ids(shape),
    }


def _generation_config(trained: Trained) -> dict[str, Any]:
    samples = trained.settings.get("samples", {})
    temperature, top_k = samples.get("temperature", 0.8), samples.get("top_k", 40)
    chosen = {"do_sample": True, "temperature": temperature, "top_k": top_k}
    return {**special_ids(trained.shape), **(chosen if temperature > 0 else {"do_sample": False})}


def write_tokenizer(trained: Trained, folder: Path) -> None:
    """Write tokenizer.json, its config, and the vocabulary in our own form.

    Calling the tokenizer puts BOS in front, as training does; `add_special_tokens=False` leaves it out. Text
    that spells BOS stays text (`split_special_tokens`).
    """
    from andrea.tokenizer.export_json import BOS_SURFACE, write_tokenizer_json

    tokenizer = trained.tokenizer
    assert tokenizer is not None
    write_tokenizer_json(tokenizer, folder, trained.shape.context)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    bos = {"SpecialToken": {"id": BOS_SURFACE, "type_id": 0}}
    a, b = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [bos, a],
        "pair": [bos, a, bos, b],
        "special_tokens": {BOS_SURFACE: {"id": BOS_SURFACE, "ids": [tokenizer.bos], "tokens": [BOS_SURFACE]}},
    }
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config |= dict.fromkeys(("bos_token", "eos_token", "pad_token"), BOS_SURFACE)
    config |= {"split_special_tokens": True, "model_input_names": ["input_ids", "attention_mask"]}
    _write_json(folder / "tokenizer.json", content)
    _write_json(folder / "tokenizer_config.json", config)
    tokenizer.save(str(folder / SEGMENTS))


def export_folder(trained: Trained, path: Path, dtype: str, force: bool, licence: str | None) -> list[Path]:
    """Write the folder and return the files in it."""
    need("safetensors.numpy")
    sources = list(data_sources(trained))
    with new_folder(path, force, lambda old: _is_export_of(old, trained.name), "config.json") as folder:
        tensors = as_type(hugging_face_tensors(trained.shape, trained.tensors), dtype)
        write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
        if trained.tokenizer is not None:
            write_tokenizer(trained, folder)
        _write_json(folder / "generation_config.json", _generation_config(trained))
        _write_json(folder / MANIFEST, data_manifest(trained, sources, licence))
        (folder / "README.md").write_text(card(trained, sources, licence, dtype), encoding="utf-8")
        _write_json(folder / "config.json", model_config(trained.shape, dtype))
        names = sorted(file.name for file in folder.iterdir())
    return [path / name for name in names]


def _is_export_of(folder: Path, name: str) -> bool:
    try:
        told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(told, dict) and told.get("name") == name


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
