"""`andrea eval`: loss, perplexity and bits per byte, against the definition, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from andrea import Engine, Tokenizer, load_experiment, read_checkpoint, write_checkpoint
from andrea._core import BtokFile
from andrea.cli import run
from andrea.data.pack import pack_documents
from tiny_run import make_wild_checkpoint

CONTEXT = 32


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an experiment with a checkpoint beside it."""
    return make_wild_checkpoint(tmp_path_factory.mktemp("evaluate"), 0.1)


def evaluated(capsys: pytest.CaptureFixture[str], config: Path, *flags: object) -> tuple[int, str, str]:
    arguments = [
        "eval",
        config.with_name("x.bin"),
        "--config",
        config,
        "--device",
        "cpu",
        "--threads",
        1,
        *flags,
    ]
    code = run([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def window_losses(config: Path, path: Path) -> list[float]:
    """Return the mean loss of each window, from the definition: softmax over the forward pass."""
    engine = Engine(load_experiment(str(config)), "cpu", 1)
    engine.load(config.with_name("x.bin"))
    file = BtokFile(str(path))
    stream = np.concatenate([np.concatenate([[256], file.document(doc)]) for doc in range(file.n_docs)])
    losses = []
    for begin in range(0, len(stream) - CONTEXT, CONTEXT):
        ids = stream[begin : begin + CONTEXT + 1]
        logits = engine.logits(ids[None, :-1])[0].astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        log_sum = (np.log(np.exp(logits - top).sum(axis=1, keepdims=True)) + top)[:, 0]
        losses.append(float((log_sum - logits[np.arange(CONTEXT), ids[1:]]).mean()))
    return losses


def test_figures_follow_their_definitions(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = evaluated(capsys, config, "--json", "--batch", 3)
    report = json.loads(out)
    assert code == 0
    assert [source["source"] for source in report["sources"]] == ["alpha", "beta"]
    for source in report["sources"]:
        path = config.with_name(f"{source['source']}.eval.btok")
        losses = window_losses(config, path)
        file = BtokFile(str(path))
        assert source["windows"] == source["windows_in_file"] == len(losses) > 5
        loss, error = np.mean(losses), np.std(losses, ddof=1) / math.sqrt(len(losses))
        factor = (file.n_tokens + file.n_docs) / file.n_bytes / math.log(2)
        for figure, value, standard_error in (
            ("loss", loss, error),
            ("perplexity", math.exp(loss), math.exp(loss) * error),
            ("bits_per_byte", loss * factor, error * factor),
        ):
            assert source[figure]["value"] == pytest.approx(value, rel=1e-5)
            assert source[figure]["standard_error"] == pytest.approx(standard_error, rel=1e-3)
    bits = [source["bits_per_byte"]["value"] for source in report["sources"]]
    assert report["mean_bits_per_byte"] == pytest.approx(np.mean(bits))


def test_a_part_is_spread_over_the_file(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = config.with_name("alpha.btok")
    losses = window_losses(config, path)
    code, out, _ = evaluated(
        capsys, config, "--data", path, "--data", path, "--max-windows", 5, "--json", "--batch", 2
    )  # named twice, measured once
    [source] = json.loads(out)["sources"]
    assert code == 0
    assert (source["source"], source["windows"]) == ("alpha (trained on)", 5)
    assert source["windows_in_file"] == len(losses)
    chosen = [losses[k * len(losses) // 5] for k in range(5)]
    assert source["loss"]["value"] == pytest.approx(np.mean(chosen), rel=1e-5)
    code, out, _ = evaluated(capsys, config, "--data", path, "--max-windows", 5)
    assert f"5 of {len(losses)} x {CONTEXT}" in out
    assert "standard error over windows" in out


def test_a_file_shorter_than_the_context_is_one_window(
    config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(str(config.with_name("harris_segments.json")))
    pack_documents([b" the of and"], tokenizer, tmp_path / "short.btok", holdout=0.0, context=64)
    code, out, _ = evaluated(capsys, config, "--data", tmp_path / "short.btok", "--json")
    [source] = json.loads(out)["sources"]
    assert code == 0
    assert (source["source"], source["windows"], source["window_tokens"]) == ("short", 1, 3)
    assert source["loss"]["standard_error"] is None
    code, out, _ = evaluated(capsys, config, "--data", tmp_path / "short.btok")
    assert (code, "+- standard" in out) == (0, True)


def test_what_it_refuses(config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = Tokenizer.from_segments(
        [
            f" {k}"
            for k in range(Tokenizer.load(str(config.with_name("harris_segments.json"))).vocab_size - 257)
        ]
    )
    pack_documents([b"one two three"], other, tmp_path / "other.btok", holdout=0.0, context=64)
    code, _, err = evaluated(capsys, config, "--data", tmp_path / "other.btok")
    assert code == 65
    assert "another tokenizer" in err
    assert f"{other.hash:016x}" in err
    damaged = bytearray(config.with_name("alpha.btok").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged.btok").write_bytes(damaged)
    assert evaluated(capsys, config, "--data", tmp_path / "damaged.btok")[0] == 65
    assert evaluated(capsys, config, "--data", tmp_path / "none.btok")[0] in (65, 74)
    assert evaluated(capsys, config, "--max-windows", 0)[0] == 64
    bare = json.loads(config.read_text())
    for source in bare["data"]["sources"]:
        del source["eval"]
    bare["train"] |= {"eval_every": 0}
    (config.parent / "bare.json").write_text(json.dumps(bare))
    code = run(
        [
            "eval",
            str(config.with_name("x.bin")),
            "--config",
            str(config.parent / "bare.json"),
            "--device",
            "cpu",
        ]
    )
    assert code == 78
    assert "--data" in capsys.readouterr().err


def test_diverged_weights_are_told_and_json_stays_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_wild_checkpoint(tmp_path, 0.1)
    weights = read_checkpoint(config.with_name("x.bin"))["weights"]
    write_checkpoint(config.with_name("x.bin"), 0, weights * np.float32(1e4))
    code, out, _ = evaluated(capsys, config, "--json", "--max-windows", 2)
    assert code == 0
    figures = json.loads(out, parse_constant=pytest.fail)["sources"][0]
    assert figures["loss"]["value"] > 700
    assert figures["perplexity"] == {"value": None, "standard_error": None}
    write_checkpoint(config.with_name("x.bin"), 0, weights * np.float32(1e30))
    code, _, err = evaluated(capsys, config, "--json", "--max-windows", 2)
    assert code == 70
    assert "have diverged" in err
