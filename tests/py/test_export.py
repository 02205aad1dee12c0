"""Exports hold the engine's model, whole, in its consumers' own words; nothing else is overwritten."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from andrea.audit.samples import read_history
from andrea.cli import run
from andrea.errors import CheckpointError, ConfigError, DataError, IoError
from andrea.export.gguf_file import export_gguf
from andrea.export.hugging_face import export_folder
from andrea.export.placing import _pour
from andrea.export.source import load_trained
from andrea.export.tensors_file import export_tensors, read_about
from andrea.generate.model import load_model
from export_cases import SHAPES, make_model
from tiny_run import cli, make_experiment, train

safetensors = pytest.importorskip("safetensors.numpy")
gguf = pytest.importorskip("gguf")


def gpt2_logits(folder: Path, ids: np.ndarray) -> np.ndarray:
    """GPT-2 by its published formulas in float64, from the files of an HF folder alone."""
    config = json.loads((folder / "config.json").read_text())
    w = {k: v.astype(np.float64) for k, v in safetensors.load_file(folder / "model.safetensors").items()}
    heads, t = config["n_head"], ids.size

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config["layer_norm_epsilon"])
        return scaled * w[name + ".weight"] + w[name + ".bias"]

    def conv(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:t]
    for i in range(config["n_layer"]):
        block = f"transformer.h.{i}."
        q, k, v = np.split(conv(norm(x, block + "ln_1"), block + "attn.c_attn"), 3, axis=-1)
        q, k, v = (part.reshape(t, heads, -1).transpose(1, 0, 2) for part in (q, k, v))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores = np.where(np.tril(np.ones((t, t), bool)), scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (share / share.sum(-1, keepdims=True)) @ v
        x = x + conv(mixed.transpose(1, 0, 2).reshape(t, -1), block + "attn.c_proj")
        h = conv(norm(x, block + "ln_2"), block + "mlp.c_fc")
        h = 0.5 * h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        x = x + conv(h, block + "mlp.c_proj")
    head = w["transformer.wte.weight"] if config["tie_word_embeddings"] else w["lm_head.weight"]
    return norm(x, "transformer.ln_f") @ head.T


@pytest.mark.parametrize("which", SHAPES)
def test_folder_computes_the_engines_logits(tmp_path: Path, which: str) -> None:
    model = make_model(tmp_path, which)
    trained = model.trained()
    export_folder(trained, tmp_path / "hf", "f32", False, "apache-2.0")
    ids = np.random.default_rng(1).integers(0, trained.shape.vocab_size, trained.shape.context)
    theirs, ours = gpt2_logits(tmp_path / "hf", ids), model.engine.logits(ids[None])[0]
    assert theirs.shape == ours.shape  # no padding of the vocabulary
    assert np.abs(theirs - ours).max() < 1e-3
    assert np.abs(ours).max() > 1
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["activation_function"] == "gelu_new"
    assert config["bos_token_id"] == config["eos_token_id"] == config["pad_token_id"] == 256
    card = (tmp_path / "hf" / "README.md").read_text()
    assert f"**{model.engine.n_params:,} parameters**" in card
    assert "license: apache-2.0" in card


def test_layout_is_the_engines(tmp_path: Path) -> None:
    for which in SHAPES:
        model = make_model(tmp_path / which, which)
        trained, engine = model.trained(), model.engine.parameters()
        assert list(trained.tensors) == list(engine)
        assert all(np.array_equal(trained.tensors[name], engine[name]) for name in engine)
        assert trained.shape.n_params == model.engine.n_params


def test_safetensors_have_the_engines_names(tmp_path: Path) -> None:
    model = make_model(tmp_path, "untied")
    path = export_tensors(model.trained(), tmp_path / "m.safetensors", "f32", False)
    found, engine = safetensors.load_file(path), model.engine.parameters()
    assert found.keys() == engine.keys()
    assert all(np.array_equal(found[name], engine[name]) for name in engine)
    assert read_about(path)["model"]["vocab_size"] == model.tokenizer.vocab_size


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0"])
def test_gguf_tensors_are_ours_at_each_type(tmp_path: Path, kind: str) -> None:
    model = make_model(tmp_path, "untied")
    export_gguf(model.trained(), tmp_path / "m.gguf", kind, False, None)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    read = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    types = {t.name: t.tensor_type.name for t in reader.tensors}
    assert types["blk.0.ffn_up.weight"] == kind.upper()
    assert types["output_norm.weight"] == types["blk.1.attn_qkv.bias"] == "F32"
    ours = model.engine.parameters()
    allowed = {"f32": 0.0, "f16": 1e-3, "q8_0": 2e-2}[kind]
    for theirs, name in {"token_embd.weight": "tok_embed", "blk.1.ffn_down.weight": "layers.1.w_2"}.items():
        assert read[theirs].shape == ours[name].shape
        assert np.abs(read[theirs] - ours[name]).max() <= allowed
    assert not any(
        read[name].any() for name in read if name.startswith("blk") and "norm" not in name and "bias" in name
    )


def test_rows_that_q8_0_cannot_hold_are_said(tmp_path: Path) -> None:
    trained = make_model(tmp_path, "odd").trained()
    (line,) = export_gguf(trained, tmp_path / "m.gguf", "q8_0", False, None)
    assert "stay f16" in line


def test_values_beyond_float16_are_refused(tmp_path: Path) -> None:
    trained = make_model(tmp_path, "tied").trained()
    trained.tensors["layers.0.w_1"][3, 5] = 1e6
    with pytest.raises(DataError, match="float16 ends at 65504"):
        export_tensors(trained, tmp_path / "m.safetensors", "f16", False)
    with pytest.raises(DataError, match="export as f32"):
        export_gguf(trained, tmp_path / "m.gguf", "f16", False, None)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "experiment.json",
        "harris_segments.json",
        "model.bin",
    ]


def test_only_an_earlier_export_is_written_over(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a", "tied")
    trained, other = model.trained(), make_model(tmp_path / "b", "odd").trained()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for write in (
        lambda t, p, f: export_tensors(t, p, "f32", f),
        lambda t, p, f: export_gguf(t, p, "f32", f, None),
    ):
        with pytest.raises(ConfigError, match="--force"):
            write(trained, precious, False)
        assert precious.read_text() == "mine"
        own = tmp_path / "own"
        write(trained, own, False)
        first = own.read_bytes()
        write(trained, own, False)
        assert own.read_bytes() == first
        with pytest.raises(ConfigError, match="no earlier export"):
            write(other, own, False)
        write(other, own, True)
        assert own.read_bytes() != first
        own.unlink()

    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="--force"):
        export_folder(trained, folder, "f32", False, None)
    assert os.listdir(folder) == ["notes.txt"]
    export_folder(trained, folder, "f32", True, None)
    export_folder(trained, folder, "f16", False, None)
    assert (folder / "notes.txt").read_text() == "mine"
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_interrupted_folder_leaves_no_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = make_model(tmp_path, "tied").trained()
    export_folder(trained, tmp_path / "hf", "f32", False, None)
    real, calls = os.replace, []

    def fail_at_third(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr("os.replace", fail_at_third)
    with pytest.raises(IoError, match="No space left"):
        export_folder(trained, tmp_path / "hf", "f16", False, None)
    assert not (tmp_path / "hf" / "config.json").exists()

    def fail(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.rename", fail)
    with pytest.raises(IoError, match="No space left"):
        export_folder(trained, tmp_path / "new", "f16", False, None)
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith((".", "new"))]


def test_two_exports_at_once_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def slowly(source: Path, target: Path) -> None:
        time.sleep(0.005)
        real(source, target)

    monkeypatch.setattr("os.replace", slowly)
    (tmp_path / "out").mkdir()
    for which in "12":
        (tmp_path / which).mkdir()
        for name in "abcdefgh":
            (tmp_path / which / name).write_text(which)
    pours = [
        threading.Thread(target=_pour, args=(tmp_path / which, tmp_path / "out", name))
        for which, name in (("1", "a"), ("2", "h"))  # in different orders
    ]
    for pour in pours:
        pour.start()
    for pour in pours:
        pour.join()
    assert len({(tmp_path / "out" / name).read_text() for name in "abcdefgh"}) == 1


def test_run_falls_back_to_the_newest_pair_that_verifies(tmp_path: Path) -> None:
    config = make_experiment(tmp_path, train__steps=20)
    assert train(config, tmp_path / "run").returncode == 0
    run = tmp_path / "run"
    trained = load_trained(run)
    assert (trained.step, trained.notes) == (20, ())
    assert load_trained(run / "tiny-best.bin").state is not None
    out = cli("export", run, "--format", "hf", "--out", tmp_path / "hf", "--license", "My Own | Terms")
    assert (out.returncode, out.stderr) == (0, "")
    card, manifest = (tmp_path / "hf" / name for name in ("README.md", "andrea_manifest.json"))
    told = json.loads(manifest.read_text())
    assert told["tokens_seen"] == 20 * 4 * 32
    assert [source["n_docs"] for source in told["sources"]] == [87, 82]
    assert 0 < told["sources"][0]["epochs"] < 2
    assert str(tmp_path) not in manifest.read_text() + card.read_text()
    assert 'license_name: "My Own | Terms"' in card.read_text()

    newest = run / "step_000020.bin"
    damaged = bytearray(newest.read_bytes())
    damaged[5000] ^= 1
    newest.unlink()  # it has hard links
    newest.write_bytes(damaged)
    older = load_trained(run)
    assert older.step == 10
    assert load_model(run).engine.steps_done == 10  # what writes and evaluates does not trust it either
    with pytest.raises(CheckpointError, match="one of them is damaged"):
        load_model(newest)
    assert "step_000020.bin has hash" in older.notes[0]
    with pytest.raises(CheckpointError, match="one of them is damaged"):
        load_trained(newest)

    damaged[5000] ^= 1
    newest.write_bytes(damaged)
    state = run / "step_000020.state.json"
    state.write_text(state.read_text().replace('"d_model":16', '"d_model":"x"'))
    assert load_trained(run).step == load_model(run).engine.steps_done == 10
    history = read_history(run)
    assert history.settings is not None
    assert history.settings["model"]["d_model"] == 16
    assert "step_000020.state.json is damaged" in history.notes[0]


def test_pipes_and_files_without_end_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for endless in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(CheckpointError, match="is no checkpoint"):
            load_trained(endless)
    trained = make_model(tmp_path, "tied").trained()
    with pytest.raises(ConfigError, match="a pipe or a socket"):
        export_tensors(trained, tmp_path / "pipe", "f32", force=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(IoError, match="file/x: cannot write"):  # and not the removal of its temporary file
        export_tensors(trained, tmp_path / "file" / "x", "f32", force=False)


def test_what_is_read_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Even with --force: the model would be gone."""
    model = make_model(tmp_path, "tied")
    folder = tmp_path / "hf"
    export_folder(model.trained(), folder, "f32", False, None)
    link = tmp_path / "link.bin"
    link.hardlink_to(model.checkpoint)
    files = [model.checkpoint, link, *folder.iterdir()]
    before = [file.read_bytes() for file in files]
    for out in (model.checkpoint, link):
        flags = ["--config", str(model.config), "--format", "safetensors", "--out", str(out), "--force"]
        assert run(["export", str(model.checkpoint), *flags]) == 78
        assert "is the checkpoint that is exported" in capsys.readouterr().err
    for name in ("config.json", "model.safetensors"):
        assert run(["import", str(folder), "--out", str(folder / name), "--force"]) == 78
        assert "part of the model that is imported" in capsys.readouterr().err
    assert [file.read_bytes() for file in files] == before
    assert run(["import", str(folder / "config.json"), "--out", str(tmp_path / "i.bin")]) == 65
    assert "give the folder" in capsys.readouterr().err
    for _ in range(2):
        assert run(["import", str(folder), "--out", str(folder / "i.bin"), "--force"]) == 0


def test_what_cannot_be_exported_is_told(tmp_path: Path) -> None:
    model = make_model(tmp_path, "tied")
    with pytest.raises(ConfigError, match="--config"):
        load_trained(model.checkpoint)
    with pytest.raises(IoError, match="no such run"):
        load_trained(tmp_path / "nowhere")
    out = cli(
        "export", model.checkpoint, "--config", model.config, "--format", "hf", "--out", "x", "--type", "q8_0"
    )
    assert (out.returncode, out.stdout) == (78, "")
    assert "only gguf has it" in out.stderr
    experiment = json.loads(model.config.read_text())
    del experiment["data"]
    model.config.write_text(json.dumps(experiment))
    with pytest.raises(ConfigError, match="names no tokenizer"):
        export_gguf(model.trained(), tmp_path / "m.gguf", "f32", False, None)
    names = [path.name for path in export_folder(model.trained(), tmp_path / "hf", "f32", False, None)]
    assert "tokenizer.json" not in names
