"""The curriculum and the engine together: replay, resume, gate, polish, on a model that trains in seconds."""

from __future__ import annotations

import json
import pydoc
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import andrea.train
from andrea.cli import run as andrea_command
from andrea.curriculum.replay import decision_at, decisions, replay
from andrea.data.btok import BtokWriter
from andrea.tokenizer import Tokenizer
from andrea.train import RunOptions

NAMES = ("prose", "code", "digits", "letters")


def texts() -> dict[str, list[str]]:
    names = ("json", "random", "textwrap", "difflib", "string", "heapq", "bisect", "shutil")
    prose = [pydoc.plain(pydoc.render_doc(name))[:1500] for name in names]
    code = [Path(__import__(name).__file__).read_text()[:1500] for name in names]
    digits = [" ".join(str(n * n) for n in range(k, k + 200)) for k in range(6)]
    letters = ["".join(chr(97 + (n * k) % 26) for n in range(700)) for k in range(1, 6)]
    return dict(zip(NAMES, (prose, code, digits, letters), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    tokenizer = Tokenizer.from_segments([" the", "the", " a", "in", "er", " of", "    "])
    tokenizer.save(str(root / "harris_segments.json"))
    for name, documents in texts().items():
        with BtokWriter(root / f"{name}.btok", tokenizer.vocab_size, tokenizer.hash) as out:
            for text in documents:
                out.add(tokenizer.encode(text), len(text.encode()))
    return root


def experiment(folder: Path, file: str = "m.json", **changes: Any) -> Path:
    tokenizer = Tokenizer.load(str(folder / "harris_segments.json"))
    value: dict[str, Any] = {
        "name": "m",
        "model": {
            "d_model": 16,
            "n_head": 2,
            "n_layer": 1,
            "context": 32,
            "vocab_size": tokenizer.vocab_size,
        },
        "train": {"steps": 150, "batch_size": 4, "lr": {"peak": 3e-3, "min": 3e-4, "warmup_steps": 10}},
        "data": {
            "tokenizer": "harris_segments.json",
            "sources": [{"name": n, "train": f"{n}.btok", "floor": 0.3 * (n == "code")} for n in NAMES],
        },
        "curriculum": {"curriculum_warmup_steps": 40, "curriculum_warmup_sources": ["prose", "code"]},
        "samples": {"sample_every": 0},
        "checkpoint": {"every": 50, "min_seconds": 0},
    }
    for key, change in changes.items():
        value[key].update(change)
    path = folder / file
    path.write_text(json.dumps(value))
    return path


def history(run: Path) -> tuple[bytes, bytes, bytes]:
    last = max(run.glob("step_*.bin"))
    return (run / "m.loss.json").read_bytes(), (run / "m.rows.jsonl").read_bytes(), last.read_bytes()


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    assert andrea.train.train(experiment(folder), folder / "whole") == 0
    return folder / "whole"


def test_every_decision_of_a_run_can_be_replayed_from_its_log(whole: Path) -> None:
    with (whole / "m.rows.jsonl").open("rb") as lines:
        found = replay(lines)
    assert found.differences == []
    assert found.decisions >= 4
    seen = list(decisions(whole / "m.rows.jsonl"))
    assert seen[0]["warm_up"] is True
    assert seen[-1]["warm_up"] is False
    assert [a["step"] + a["steps"] for a in seen[:-1]] == [b["step"] for b in seen[1:]]
    rows = [
        json.loads(line) for line in (whole / "m.rows.jsonl").read_text().splitlines() if '"loss"' in line
    ]
    first_open = next(d["step"] for d in seen if not d["warm_up"])
    assert {row["source"] for row in rows if row["step"] < first_open} == {"prose", "code"}
    assert {row["source"] for row in rows} == set(NAMES)


@pytest.mark.parametrize("cuts", [(1,), (39, 40, 41), (77,), (13, 90, 149)])
def test_a_resume_at_any_step_is_the_run_that_was_never_stopped(
    folder: Path, whole: Path, cuts: tuple[int, ...], tmp_path: Path
) -> None:
    config, run = folder / "m.json", tmp_path / "run"
    for number, cut in enumerate(cuts):
        assert andrea.train.train(config, run, RunOptions(steps=cut, resume=number > 0)) == 0
    assert andrea.train.train(config, run, RunOptions(resume=True)) == 0
    loss, rows, weights = history(whole)
    again_loss, again_rows, again_weights = history(run)
    assert again_loss == loss
    assert again_weights == weights
    with (run / "m.rows.jsonl").open("rb") as lines:
        assert replay(lines).exact

    def plain(text: bytes) -> list[Any]:  # after a resume the settings stand in the log once more
        values = [json.loads(line) for line in text.splitlines()]
        for value in values:
            if isinstance(value.get("phase"), dict):
                value["phase"].pop("curriculum", None)
        return values

    assert plain(again_rows) == plain(rows)


def test_explain_tells_why(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert andrea_command(["curriculum", "explain", str(whole), "--step", "100"]) == 0
    shown = capsys.readouterr().out
    decision, _ = decision_at(whole / "m.rows.jsonl", 100)
    assert f"rolled {decision['roll']}" in shown
    for name in NAMES:
        assert name in shown
    assert andrea_command(["curriculum", "replay", str(whole)]) == 0
    assert "all the same bits" in capsys.readouterr().out
    assert andrea_command(["curriculum", "explain", str(whole), "--step", "100000"]) == 65
    assert andrea_command(["curriculum", "explain", str(whole.parent)]) == 74


def test_the_gate_stops_a_run_and_samples_carry_their_parts(folder: Path, tmp_path: Path) -> None:
    samples = {"sample_every": 10, "tokens": 40, "threshold": 100, "patience": 3}
    config = experiment(folder, "gate.json", samples=samples)
    assert andrea.train.train(config, tmp_path / "run") == 79
    kept = json.loads((tmp_path / "run" / "m.samples.json").read_text())
    assert [sample["step"] for sample in kept] == [10, 20, 30]
    for sample in kept:
        parts = sample["coherence"]
        assert parts["score"] == pytest.approx(
            parts["bigrams"] + parts["trigrams"] + parts["words"] + parts["characters"]
        )
    assert andrea.train.train(config, tmp_path / "run", RunOptions(resume=True)) == 79
    past = RunOptions(resume=True, past_gate=True)
    assert andrea.train.train(config, tmp_path / "run", past) == 79  # and it is stopped again later


def test_sampling_does_not_change_training(folder: Path, whole: Path, tmp_path: Path) -> None:
    samples = {"sample_every": 25, "tokens": 40, "threshold": 0}
    config = experiment(folder, "samples.json", samples=samples)
    assert andrea.train.train(config, tmp_path / "run") == 0
    assert history(tmp_path / "run") == history(whole)


def test_polish_goes_on_under_new_limits(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    samples = {"sample_every": 20, "tokens": 40, "threshold": 0}
    assert andrea.train.train(experiment(folder, "p.json", samples=samples), run, RunOptions(steps=60)) == 0
    before = json.loads((run / "m.loss.json").read_text())
    sources = [
        {"name": n, "train": f"{n}.btok", "floor": 0.9 * (n == "digits"), "cap": 0.0 if n == "letters" else 1}
        for n in NAMES
    ]
    data = {"sources": sources}
    new = experiment(folder, "new.json", samples=samples, data=data)
    assert andrea_command(["polish", str(run), "--config", str(new), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "code: floor 0.3 -> 0, cap 1 -> 1" in shown
    assert "digits: floor 0 -> 0.9, cap 1 -> 1" in shown
    after = json.loads((run / "m.loss.json").read_text())
    assert after[: len(before)] == before
    assert len(after) == 150
    assert all(sample["step"] > 60 for sample in json.loads((run / "m.samples.json").read_text()))
    assert len(list(run.glob("m.samples.until*.json"))) == 1
    polished = [d for d in decisions(run / "m.rows.jsonl") if d["step"] >= 60]
    assert polished[0]["step"] == 60
    assert any("floor 0 -> 0.9" in note for note in polished[0]["notes"])
    for decision in polished:
        assert decision["arms"]["relative"][NAMES.index("digits")] >= 0.9
        assert decision["arms"]["weight"][NAMES.index("letters")] == 0.0
    with (run / "m.rows.jsonl").open("rb") as lines:
        assert replay(lines).exact
    assert andrea_command(["polish", str(tmp_path / "none"), "--config", str(new)]) == 78


def test_polish_stops_a_trainer_that_runs_and_goes_on(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    samples = {"sample_every": 0}
    train = {"steps": 100_000, "batch_size": 4, "lr": {"peak": 1e-3, "min": 1e-4, "warmup_steps": 10}}
    command = [sys.executable, "-m", "andrea", "train", "--quiet", "--out", str(run)]
    trainer = subprocess.Popen([*command, str(experiment(folder, "live.json", samples=samples, train=train))])
    try:
        end = time.monotonic() + 60
        while not list(run.glob("step_*.state.json")):
            assert time.monotonic() < end, "no checkpoint in a minute"
            assert trainer.poll() is None
            time.sleep(0.05)
        sources = [{"name": n, "train": f"{n}.btok", "floor": 0.9 * (n == "digits")} for n in NAMES]
        new = experiment(folder, "live2.json", samples=samples, train=train, data={"sources": sources})
        polish = ["polish", str(run), "--config", str(new), "--quiet"]
        assert andrea_command(polish) == 74  # it trains still, and nobody said that it may be stopped
        assert trainer.poll() is None
        steps = max(int(path.name[5:11]) for path in run.glob("step_*.state.json")) + 2000
        assert andrea_command([*polish, "--stop", "--steps", str(steps)]) == 0
        assert trainer.wait(timeout=30) == 75
    finally:
        trainer.kill()
        trainer.wait()
    losses = json.loads((run / "m.loss.json").read_text())
    assert [step for step, _ in losses] == list(range(len(losses)))


def test_missing_sources_are_all_named_with_what_to_do(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"sources": [{"name": n, "train": f"nowhere/{n}.btok"} for n in NAMES]}
    config = experiment(folder, "lost.json", data=data)
    assert andrea_command(["train", str(config), "--out", str(tmp_path / "run")]) == 74
    shown = capsys.readouterr().err
    assert all(f"{name} (train)" in shown for name in NAMES)
    assert "andrea data pull" in shown
    assert not (tmp_path / "run").exists()
