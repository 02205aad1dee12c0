"""`andrea import` gives back what was exported, and refuses what the engine does not compute."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from andrea import read_checkpoint
from andrea.errors import ConfigError, DataError
from andrea.export.hugging_face import export_folder
from andrea.export.importing import import_folder
from export_cases import SHAPES, make_model
from tiny_run import cli, make_experiment, train

safetensors = pytest.importorskip("safetensors.numpy")


@pytest.mark.parametrize("which", SHAPES)
def test_round_trip_gives_equal_bytes(tmp_path: Path, which: str) -> None:
    model = make_model(tmp_path, which)
    export_folder(model.trained(), tmp_path / "hf", "f32", False, None)
    made = import_folder(tmp_path / "hf", tmp_path / "back.bin", False)
    # The engine's own checkpoint of step 0 has no moments yet, so the files are equal as a whole.
    assert (tmp_path / "back.bin").read_bytes() == model.checkpoint.read_bytes()
    assert made.shape == model.trained().shape
    assert made.segments == tmp_path / "hf" / "harris_segments.json"
    with pytest.raises(ConfigError, match="--force"):
        import_folder(tmp_path / "hf", tmp_path / "back.bin", False)


def test_training_starts_from_it(tmp_path: Path) -> None:
    config = make_experiment(tmp_path, train__steps=6, samples__sample_every=0)
    assert train(config, tmp_path / "run").returncode == 0
    steps = [
        cli("export", tmp_path / "run", "--format", "hf", "--out", tmp_path / "hf"),
        cli("import", tmp_path / "hf", "--out", tmp_path / "x.bin"),
        train(config, tmp_path / "on", "--from", tmp_path / "x.bin"),
    ]
    assert [step.returncode for step in steps] == [0, 0, 0]
    assert '"vocab_size": 331' in steps[1].stdout
    first = read_checkpoint(tmp_path / "run" / "tiny.bin")["weights"]
    assert np.array_equal(read_checkpoint(tmp_path / "x.bin")["weights"], first)
    losses = [json.loads((tmp_path / run / "tiny.loss.json").read_text()) for run in ("run", "on")]
    assert losses[1][0][1] < losses[0][0][1] - 0.1


def test_old_names_and_narrow_types(tmp_path: Path) -> None:
    model = make_model(tmp_path, "tied")
    export_folder(model.trained(), tmp_path / "hf", "f32", False, None)
    weights = tmp_path / "hf" / "model.safetensors"
    old = {k.removeprefix("transformer."): v for k, v in safetensors.load_file(weights).items()}
    context = SHAPES["tied"].context
    old["h.0.attn.bias"] = np.tril(np.ones((1, 1, context, context), np.uint8))
    old["lm_head.weight"] = old["wte.weight"]
    del old["h.1.mlp.c_fc.bias"]
    safetensors.save_file(old, weights)
    import_folder(tmp_path / "hf", tmp_path / "old.bin", False)
    assert (tmp_path / "old.bin").read_bytes() == model.checkpoint.read_bytes()

    # bfloat16: the upper half of each float32
    names = sorted(old.keys() - {"h.0.attn.bias"})
    halves = {name: (old[name].view(np.uint32) >> 16).astype("<u2") for name in names}
    header, begin = {}, 0
    for name in names:
        end = begin + halves[name].nbytes
        header[name] = {"dtype": "BF16", "shape": list(old[name].shape), "data_offsets": [begin, end]}
        begin = end
    head = json.dumps(header).encode()
    weights.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(halves[n].tobytes() for n in names))
    import_folder(tmp_path / "hf", tmp_path / "bf16.bin", False)
    wide = read_checkpoint(tmp_path / "bf16.bin")["weights"]
    exact = read_checkpoint(model.checkpoint)["weights"]
    assert np.array_equal(wide.view(np.uint32), exact.view(np.uint32) & 0xFFFF0000)


Change = Callable[[dict[str, Any], dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda c, t: t["transformer.h.1.mlp.c_fc.bias"].__setitem__(3, 0.5),
            r"c_fc.bias is not zero .*0\.5",
        ),
        (lambda c, t: c.update(activation_function="gelu"), "activation_function is 'gelu'"),
        (lambda c, t: c.update(layer_norm_epsilon=1e-6), "layer_norm_epsilon is 1e-06"),
        (lambda c, t: c.update(n_inner=100), "n_inner is 100"),
        (lambda c, t: c.update(model_type="llama"), "model_type is 'llama'"),
        (lambda c, t: c.update(n_head=5), "n_embd 32 is not divided by n_head 5"),
        (lambda c, t: c.update(vocab_size=True), "vocab_size is True"),
        (
            lambda c, t: c.update(scale_attn_by_inverse_layer_idx=True),
            "scale_attn_by_inverse_layer_idx is True",
        ),
        (lambda c, t: c.update(vocab_size=288), r"wte.weight has shape \[287, 32\]"),
        (lambda c, t: t.pop("transformer.ln_f.bias"), "ln_f.bias is missing"),
        (lambda c, t: t.update(extra=np.zeros(1, np.float32)), "extra is none of GPT-2's"),
        (lambda c, t: t.update({"lm_head.weight": t["transformer.wte.weight"] + 1}), "says they are tied"),
        (lambda c, t: c.update(tie_word_embeddings=False), "lm_head.weight is missing"),
        (lambda c, t: t["transformer.wpe.weight"].__setitem__((0, 0), np.nan), "is NaN"),
        (lambda c, t: t.update({"wte.weight": t["transformer.wte.weight"] + 1}), "is there twice"),
    ],
)
def test_refused_with_the_reason(tmp_path: Path, change: Change, reason: str) -> None:
    export_folder(make_model(tmp_path, "tied").trained(), tmp_path / "hf", "f32", False, None)
    config_path, weights = tmp_path / "hf" / "config.json", tmp_path / "hf" / "model.safetensors"
    config, tensors = json.loads(config_path.read_text()), safetensors.load_file(weights)
    change(config, tensors)
    config_path.write_text(json.dumps(config))
    safetensors.save_file(tensors, weights)
    out = cli("import", tmp_path / "hf", "--out", tmp_path / "x.bin")
    assert out.returncode == 65
    assert __import__("re").search(reason, out.stderr), out.stderr
    assert not (tmp_path / "x.bin").exists()


def test_folders_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"config\.json is not there"):
        import_folder(tmp_path, tmp_path / "x.bin", False)
    export_folder(make_model(tmp_path, "tied").trained(), tmp_path / "hf", "f32", False, None)
    weights = tmp_path / "hf" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(DataError, match="no whole safetensors"):
        import_folder(tmp_path / "hf", tmp_path / "x.bin", False)
    weights.rename(tmp_path / "hf" / "pytorch_model.bin")
    with pytest.raises(DataError, match="can run code"):
        import_folder(tmp_path / "hf", tmp_path / "x.bin", False)
    (tmp_path / "hf" / "config.json").write_text("[1]")
    with pytest.raises(DataError, match="no JSON object"):
        import_folder(tmp_path / "hf", tmp_path / "x.bin", False)


@pytest.mark.parametrize(
    "change",
    [
        {"n_layer": 10**7},
        {"n_layer": 10**400},
        {"n_positions": 2**24},
        {"vocab_size": 10**15},
        {"n_embd": 2**24},
    ],
)
def test_promises_of_the_config_cost_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    export_folder(make_model(tmp_path, "tied").trained(), tmp_path / "hf", "f32", False, None)
    config = tmp_path / "hf" / "config.json"
    told = json.loads(config.read_text()) | change
    config.write_text(json.dumps(told | {"n_inner": None}))
    begun = time.perf_counter()
    with pytest.raises(DataError, match="not a model that andrea can train"):
        import_folder(tmp_path / "hf", tmp_path / "x.bin", False)
    assert time.perf_counter() - begun < 5


def test_odd_folders_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    folder, out = tmp_path / "hf", tmp_path / "x.bin"
    export_folder(make_model(tmp_path, "tied").trained(), folder, "f32", False, None)
    config = (folder / "config.json").read_text()

    def refused(reason: str) -> None:
        with pytest.raises(DataError, match=reason):
            import_folder(folder, out, False)
        assert not out.exists()

    (folder / "config.json").write_text("[" * 100_000)
    refused("is no JSON")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    refused("not a regular file")
    (folder / "config.json").unlink()
    (folder / "config.json").write_text("\ufeff" + config, encoding="utf-8")
    segments = (folder / "harris_segments.json").read_text()
    (folder / "harris_segments.json").write_text("{")
    refused("is no JSON")
    (folder / "harris_segments.json").write_text(segments)
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    for named in ("../a.safetensors", "..", "", 3, ["a"], str(folder / "a.safetensors"), "pytorch_model.bin"):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": named}}))
        refused("must name")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "a.safetensors"}}')
    assert import_folder(folder, out, False).path == out
