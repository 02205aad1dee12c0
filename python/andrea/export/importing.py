"""A GPT-2-shaped model of Hugging Face as a checkpoint that training can start from.

Only what the engine computes is taken: GELU in the tanh form, LayerNorm epsilon 1e-5, no biases (zeros are
no biases). All that does not fit is told at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from andrea.checkpoint import Floats, write_checkpoint
from andrea.errors import ConfigError, DataError, IoError
from andrea.export.hugging_face import LAYER_NORM_EPS, MATRICES, PREFIX, SEGMENTS, VECTORS, WEIGHTS
from andrea.export.layout import ModelShape
from andrea.export.libraries import need
from andrea.tokenizer import Tokenizer

TANH_GELU = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")  # three spellings of one formula
INDEX = "model.safetensors.index.json"
_MASKS = (".attn.bias", ".attn.masked_bias")  # buffers of old versions: the causal mask
_MUST_BE = {
    "model_type": ("gpt2", "gpt2"),
    "layer_norm_epsilon": (LAYER_NORM_EPS, LAYER_NORM_EPS),
    "scale_attn_weights": (True, True),
    "scale_attn_by_inverse_layer_idx": (False, False),
    "add_cross_attention": (False, False),
}  # name: what it must be, and what it is where it is left out

MOST_FAULTS = 20  # that are told
LARGEST = 2**24  # of any size: beyond what one GPU holds

Any_ = npt.NDArray[Any]


@dataclass(frozen=True)
class Imported:
    """What was made: the shape for an experiment, and our vocabulary if the folder has one."""

    path: Path
    shape: ModelShape
    segments: Path | None


def import_folder(folder: Path, path: Path, force: bool) -> Imported:
    """Write `path` (.bin, step 0, moments zero) from an HF folder.

    Raises DataError with every reason if the model is not one that the engine computes, ConfigError if
    `path` is there and `force` is not given.
    """
    if path.exists() and (path.is_dir() or not force):
        how = (
            "is a folder; give --out a file name"
            if path.is_dir()
            else "is there already; choose another --out, or add --force"
        )
        raise ConfigError(f"{path} {how}")
    if path.exists() and path.suffix != ".bin" and path.resolve().parent == folder.resolve():
        raise ConfigError(f"{path} is a part of the model that is imported; choose another --out")
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; give the folder that it is in")
    config = _read_json(folder / "config.json")
    shape = shape_of(config, folder / "config.json")
    theirs: dict[str, Any_] = {}
    for name, tensor in _tensors(folder):
        if name in theirs:
            raise DataError(f"{folder}: {name} is there twice, with and without prefix or in two files")
        theirs[name] = tensor
    own = folder / SEGMENTS
    fits = own.is_file() and Tokenizer.load(str(own)).vocab_size == shape.vocab_size
    write_checkpoint(path, 0, shape.join(our_tensors(shape, theirs, folder)))
    return Imported(path, shape, own if fits else None)


def _read_json(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a regular file")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DataError(
            f"{path} is not there; give a folder that save_pretrained or andrea export wrote"
        ) from None
    except OSError as error:
        raise IoError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no JSON object")
    return content


def shape_of(config: dict[str, Any], path: Path) -> ModelShape:
    """Return the shape of config.json; DataError names everything that the engine does not compute."""
    faults = []
    sizes = {}
    for key in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"):
        value = config.get(key)
        if type(value) is int and 1 <= value <= LARGEST:
            sizes[key] = value
        else:
            sizes[key] = 0
            faults.append(f"{key} is {str(value)[:40]}, a whole number from 1 to {LARGEST} is expected")
    for key, (wanted, default) in _MUST_BE.items():
        if config.get(key, default) != wanted:
            faults.append(f"{key} is {config[key]!r}, the engine has {wanted!r}")
    if (activation := config.get("activation_function", "gelu_new")) not in TANH_GELU:
        faults.append(
            f"activation_function is {activation!r}, the engine has the tanh form of GELU (gelu_new)"
        )
    d, heads = sizes["n_embd"], sizes["n_head"]
    if config.get("n_inner") not in (None, 4 * d):
        faults.append(f"n_inner is {config['n_inner']!r}, the engine has 4 x n_embd = {4 * d}")
    if heads > 0 and d % heads:
        faults.append(f"n_embd {d} is not divided by n_head {heads}")
    tied = config.get("tie_word_embeddings", True)
    if not isinstance(tied, bool):
        faults.append(f"tie_word_embeddings is {tied!r}, true or false is expected")
    if faults:
        raise DataError(f"{path}: not a model that andrea can train:\n  " + "\n  ".join(faults))
    return ModelShape(d, heads, sizes["n_layer"], sizes["n_positions"], sizes["vocab_size"], tied)


def _tensors(folder: Path) -> Iterator[tuple[str, Any_]]:
    """Yield the tensors of all .safetensors files of the folder, the prefix of the whole model taken off."""
    safetensors = need("safetensors")
    files = [folder / WEIGHTS]
    if (folder / INDEX).is_file() and not files[0].is_file():
        weight_map = _read_json(folder / INDEX).get("weight_map")
        named = list(weight_map.values()) if isinstance(weight_map, dict) else []
        names = sorted({n for n in named if isinstance(n, str) and n.endswith(".safetensors")})
        if not named or any(n not in names or Path(n).name != n for n in named):
            raise DataError(f"{folder / INDEX}: weight_map must name .safetensors files of this folder")
        files = [folder / name for name in names]
    for file in files:
        if not file.is_file():
            raise DataError(
                f"{file} is not there; other forms of weights (pytorch_model.bin) are not read, since they "
                "can run code: load and save the model again with transformers, which writes safetensors"
            )
        try:
            content = safetensors.deserialize(file.read_bytes())
        except safetensors.SafetensorError as error:
            raise DataError(f"{file} is no whole safetensors file: {error}") from error
        except OSError as error:
            raise IoError(f"cannot read {file}: {error.strerror}") from error
        for name, told in content:
            yield name.removeprefix(PREFIX), _floats(file, name, told)


def _floats(file: Path, name: str, told: dict[str, Any]) -> Any_:
    """Return a tensor as float32. bfloat16 is the upper half of a float32."""
    kind, data = told["dtype"], bytes(told["data"])
    if kind == "BF16":
        wide = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(told["shape"])
    if kind in ("F32", "F16"):
        plain = np.frombuffer(data, dtype="<f4" if kind == "F32" else "<f2")
        return plain.astype(np.float32, copy=False).reshape(told["shape"])
    if name.endswith(_MASKS):
        return np.zeros(0, np.float32)
    raise DataError(f"{file}: {name} is of type {kind}; F32, F16 and BF16 are read")


def our_tensors(shape: ModelShape, theirs: dict[str, Any_], origin: Path) -> dict[str, Floats]:
    """Return the engine's tensors; DataError names every tensor that is missing, misshapen or too much."""
    faults: list[str] = []
    left = dict(theirs)

    def nothing(*wanted: int) -> Floats:
        return np.broadcast_to(np.float32(0), wanted)  # takes no memory, whatever config.json says

    def take(name: str, *wanted: int) -> Floats:
        if name not in left:
            faults.append(f"{name} is missing")
            return nothing(*wanted)
        found = left.pop(name)
        if found.shape != wanted:
            faults.append(f"{name} has shape {list(found.shape)}, config.json makes it {list(wanted)}")
            return nothing(*wanted)
        return np.asarray(found)

    def refuse_bias(name: str, size: int) -> None:
        if name not in left:
            return
        bias = left.pop(name)
        if bias.size != size:
            faults.append(f"{name} has {bias.size} values, config.json makes it {size}")
        elif np.any(bias != 0):
            faults.append(f"{name} is not zero (largest {np.abs(bias).max():g}); the engine has no biases")

    d, v = shape.d_model, shape.vocab_size
    ours = {"tok_embed": take("wte.weight", v, d), "pos_embed": take("wpe.weight", shape.context, d)}
    sizes = {"w_o": (d, d), "w_1": (d, 4 * d), "w_2": (4 * d, d)}
    for index in range(shape.n_layer):
        if len(faults) > MOST_FAULTS:
            break  # config.json may promise millions of layers
        layer, block = f"layers.{index}.", f"h.{index}."
        for name, other in VECTORS.items():
            ours[layer + name] = take(block + other, d)
        joined = take(block + "attn.c_attn.weight", d, 3 * d).T
        refuse_bias(block + "attn.c_attn.bias", 3 * d)
        for name, part in zip(("w_q", "w_k", "w_v"), np.split(joined, 3), strict=True):
            ours[layer + name] = part
        for name, other in MATRICES.items():
            ours[layer + name] = take(f"{block}{other}.weight", *sizes[name]).T
            refuse_bias(f"{block}{other}.bias", sizes[name][1])
    ours["lnf.gamma"], ours["lnf.beta"] = take("ln_f.weight", d), take("ln_f.bias", d)
    if not shape.tie_embeddings:
        ours["head"] = take("lm_head.weight", v, d)
    elif "lm_head.weight" in left:
        head = left.pop("lm_head.weight")
        if head.shape != (v, d) or np.any(head != ours["tok_embed"]):
            faults.append("lm_head.weight differs from wte.weight, but config.json says they are tied")
    faults += [f"{name} is none of GPT-2's tensors" for name in left if not name.endswith(_MASKS)]
    if faults:
        shown = faults[:MOST_FAULTS] + (["and more"] if len(faults) > MOST_FAULTS else [])
        raise DataError(f"{origin}: not a model that andrea can train:\n  " + "\n  ".join(shown))
    return ours
