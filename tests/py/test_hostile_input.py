"""Input that means harm or is careless: each case has its message and exit code, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import andrea
from andrea.binary import path_of_binary
from andrea.data.btok import BtokWriter
from andrea.data.files import write_bytes
from andrea.data.pack import pack_documents
from andrea.errors import ConfigError, IoError
from andrea.train.display import LiveDisplay, QuietDisplay, SteadyDisplay, perplexity
from tiny_run import cli, command, make_experiment, on_terminal, start, train, wait_for


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny experiment with its data."""
    return make_experiment(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def engine(config: Path) -> andrea.Engine:
    """Return its engine."""
    return andrea.Engine(str(config), device="cpu", threads=1)


@pytest.fixture(scope="module")
def checkpoint(config: Path) -> Path:
    """Return a .bin after 20 steps."""
    assert train(config, config.parent / "short", "--steps", 20).returncode == 0
    return config.parent / "short" / "step_000020.bin"


def binary(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the binary of this installation, or the one that ANDREA_BINARY names."""
    path = os.environ.get("ANDREA_BINARY") or str(path_of_binary())
    return subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False)


# ---- paths


def test_a_nul_in_a_path_names_no_other_file(engine: andrea.Engine, config: Path, tmp_path: Path) -> None:
    for bad in (f"{tmp_path}/a\0.bin", f"{config}\0x"):
        for call in (engine.save, engine.load, andrea.load_experiment, andrea.Tokenizer.load):
            with pytest.raises(IoError, match="NUL"):
                call(bad)
    with pytest.raises(IoError, match="NUL"):
        andrea.Tokenizer.from_segments(["ab"]).save(f"{tmp_path}/t\0.json")
    assert list(tmp_path.iterdir()) == []


def test_a_nul_in_an_experiment_is_a_fault_of_its_key(config: Path, tmp_path: Path) -> None:
    settings = json.loads(config.read_text())
    settings["data"]["tokenizer"] += "\0"
    settings["data"]["sources"][1]["train"] += "\0.btok"
    (tmp_path / "bad.json").write_text(json.dumps(settings))
    result = cli("check", tmp_path / "bad.json")
    assert result.returncode == 78
    for key in ("data.tokenizer", "data.sources[1].train"):
        assert key in result.stderr
    assert "NUL" in result.stderr


@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_what_is_no_file_is_never_replaced(engine: andrea.Engine, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "pipe":
        os.mkfifo(out)
    else:
        out.symlink_to("/dev/null")
    before = out.lstat()
    with pytest.raises(IoError, match="replace"):
        engine.save(str(out))
    with pytest.raises(IoError):
        andrea.Tokenizer.from_segments(["ab"]).save(str(out))
    with pytest.raises(IoError, match="replace"):
        write_bytes(out, b"text")
    values = np.zeros(2, np.float32)
    with pytest.raises(IoError, match="replace"):
        andrea.write_checkpoint(str(out), 0, values, values, values)
    writer = BtokWriter(out, 300, 0)
    writer.add_batch(np.zeros(3, np.int32), np.array([0, 3]), 3)
    with pytest.raises(IoError, match="replace"):
        writer.close()
    after = out.lstat()
    assert (after.st_ino, stat.S_IFMT(after.st_mode)) == (before.st_ino, stat.S_IFMT(before.st_mode))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("suffix", "flags"), [(".bin", ()), ("-best.bin", ("--resume",)), (".state.json", ("--resume",))]
)
def test_a_directory_in_the_way_is_said_before_the_first_step(
    config: Path, tmp_path: Path, suffix: str, flags: tuple[str, ...]
) -> None:
    (tmp_path / f"tiny{suffix}").mkdir()
    result = train(config, tmp_path, *flags)
    assert result.returncode == 74
    assert f"tiny{suffix} is no file" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"tiny{suffix}"]


def test_messages_show_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.json"
    with pytest.raises(ConfigError, match="caf\ufffd"):
        andrea.load_experiment(name)
    bad = tmp_path / "bad.json"
    bad.write_bytes(b'{"name": "x\xff"}')
    with pytest.raises(ConfigError):
        andrea.load_experiment(str(bad))
    result = subprocess.run([*command("check"), name], capture_output=True, check=False)
    assert result.returncode == 78
    assert b"Traceback" not in result.stderr
    assert b"caf" in result.stderr


def test_missing_files_exit_74_whatever_they_are(config: Path, tmp_path: Path) -> None:
    settings = json.loads(config.read_text())
    tokenizer = str(config.parent / "harris_segments.json")
    for source in settings["data"]["sources"]:
        source["train"] = str(config.parent / source["train"])
        del source["eval"]
    cases = {"no-tokenizer": "absent.json", "no-source": tokenizer}
    for name, path in cases.items():
        settings["data"]["tokenizer"] = path
        settings["data"]["sources"][0]["train"] = str(config.parent / "alpha.btok")
        if name == "no-source":
            settings["data"]["sources"][0]["train"] = "absent.btok"
        experiment = tmp_path / f"{name}.json"
        experiment.write_text(json.dumps(settings))
        for result in (
            train(experiment, tmp_path / "run"),
            binary("--config", experiment, "--out", tmp_path / "run"),
            cli("check", experiment, "--files"),
        ):
            assert result.returncode == 74, result
            assert "absent" in result.stderr
    recipe = tmp_path / "recipe.json"
    source = {"name": "own", "reader": "text", "files": ["absent.txt"]}
    for path, present in ((tokenizer, False), ("absent-tokenizer.json", True)):
        if present:
            (tmp_path / "absent.txt").write_text("now there")
        recipe.write_text(json.dumps({"name": "r", "tokenizer": path, "out": "o", "sources": [source]}))
        result = cli("data", "prep", recipe)
        assert (result.returncode, "absent" in result.stderr) == (74, True), result


# ---- values


@pytest.mark.parametrize("given", ["foo", "0"])
def test_a_size_that_is_none_is_wrong_use(config: Path, given: str, tmp_path: Path) -> None:
    for result in (
        cli("plan", config, f"--memory={given}"),
        train(config, tmp_path / "run", f"--memory={given}"),
        binary("--config", config, "--plan", f"--memory={given}"),
    ):
        assert result.returncode == 64, result
        assert "--memory" in result.stderr


def test_parameters_must_be_finite(engine: andrea.Engine) -> None:
    before = engine.parameters()["layers.1.w_q"]
    for value in (math.nan, math.inf, -math.inf):
        bad = before.copy()
        bad[3, 2] = value
        with pytest.raises(ConfigError, match=r"layers\.1\.w_q: element 50 is not finite"):
            engine.load_parameters({"pos_embed": np.zeros((32, 16), np.float32), "layers.1.w_q": bad})
    assert np.array_equal(engine.parameters()["layers.1.w_q"], before)
    assert engine.parameters()["pos_embed"].any()


def test_a_held_out_file_too_short_to_evaluate_is_refused_at_the_start(config: Path, tmp_path: Path) -> None:
    settings = json.loads(config.read_text())
    settings["data"]["tokenizer"] = str(config.parent / "harris_segments.json")
    for source in settings["data"]["sources"]:
        source["train"] = str(config.parent / source["train"])
        source["eval"] = str(config.parent / source["eval"])
    tokenizer = andrea.Tokenizer.load(settings["data"]["tokenizer"])
    settings["data"]["sources"][1]["eval"] = "little.btok"
    experiment = tmp_path / "short.json"
    experiment.write_text(json.dumps(settings))
    pack_documents([b" the" * 31], tokenizer, tmp_path / "little.btok")  # 31 ids and a BOS
    result = train(experiment, tmp_path / "run")
    assert result.returncode == 65
    assert "little.btok: holds fewer than context + 1 = 33 ids" in result.stderr
    assert not list((tmp_path / "run").glob("*.bin"))
    pack_documents([b" the" * 32], tokenizer, tmp_path / "little.btok")
    assert train(experiment, tmp_path / "run2", "--steps", 20).returncode == 0


def test_packing_again_leaves_no_old_held_out_documents(config: Path, tmp_path: Path) -> None:
    tokenizer = andrea.Tokenizer.load(str(config.parent / "harris_segments.json"))
    documents = [f"the number {k}".encode() for k in range(50)]
    out, held = tmp_path / "x.btok", tmp_path / "x.eval.btok"
    pack_documents(documents, tokenizer, out, holdout=0.5)
    old = out.read_bytes(), held.read_bytes()
    with pytest.raises(ConfigError, match=r"x\.eval\.btok"):
        pack_documents(documents, tokenizer, out)
    assert (out.read_bytes(), held.read_bytes()) == old
    train_header, eval_header = pack_documents(documents[:3], tokenizer, out, holdout=1e-9)
    assert (train_header.n_docs, eval_header, held.exists()) == (3, None, False)


# ---- runs that are begun or gone on with in odd ways


def test_a_run_from_a_file_killed_before_its_first_checkpoint_begins_from_it_again(
    config: Path, checkpoint: Path, tmp_path: Path
) -> None:
    flags = ("--from", checkpoint, "--resume", "--steps", 25)
    result = train(config, tmp_path, *flags)  # an empty directory: as after a kill
    assert result.returncode == 0, result.stderr
    assert "weights and moments taken from" in result.stderr
    steps = [step for step, _ in json.loads((tmp_path / "tiny.loss.json").read_text())]
    assert steps == list(range(20, 25))


def test_a_run_from_a_file_has_a_checkpoint_before_its_first_step(
    config: Path, checkpoint: Path, tmp_path: Path
) -> None:
    rare = make_experiment(config.parent, "rare", train__steps=100_000, checkpoint__every=100_000)
    process = start(rare, tmp_path, "--from", checkpoint)
    wait_for(lambda: (tmp_path / "step_000020.state.json").exists(), process)
    process.kill()
    process.communicate(timeout=30)
    result = train(rare, tmp_path, "--resume", "--steps", 22)
    assert result.returncode == 0, result.stderr
    assert "resumed at step 20" in result.stdout


def test_from_beside_a_checkpoint_is_said_to_be_ignored(
    config: Path, checkpoint: Path, tmp_path: Path
) -> None:
    assert train(config, tmp_path, "--steps", 10).returncode == 0
    result = train(config, tmp_path, "--resume", "--from", checkpoint, "--steps", 12)
    assert result.returncode == 0
    assert f"--from {checkpoint} is not read" in result.stderr
    assert "resumed at step 10" in result.stdout


def test_another_seed_begins_a_new_order(config: Path, tmp_path: Path) -> None:
    assert train(config, tmp_path, "--steps", 20).returncode == 0
    before = json.loads((tmp_path / "step_000020.state.json").read_text())["sources"]
    assert train(config, tmp_path, "--resume", "--seed", 8, "--steps", 21).returncode == 78
    result = train(config, tmp_path, "--resume", "--seed", 8, "--steps", 21, "--allow-config-change")
    assert result.returncode == 0, result.stderr
    after = json.loads((tmp_path / "step_000021.state.json").read_text())["sources"]
    epochs = [(old["epoch"], new["epoch"]) for old, new in zip(before, after, strict=True)]
    assert all(new > old for old, new in epochs), epochs


def test_a_gate_that_nothing_can_close_is_said(config: Path, tmp_path: Path) -> None:
    gated = make_experiment(config.parent, "gated", samples__threshold=30)
    alone = binary("--config", gated, "--out", tmp_path / "binary", "--device", "cpu", "--steps", 1)
    assert alone.returncode == 0
    assert "coherence gate cannot stop this run" in alone.stderr
    assert "coherence gate" in binary("--help").stdout
    assert "coherence gate" not in train(gated, tmp_path / "python", "--steps", 1).stderr
    ungated = binary("--config", config, "--out", tmp_path / "ungated", "--device", "cpu", "--steps", 1)
    assert "coherence gate" not in ungated.stderr


# ---- signals around a run


@pytest.mark.parametrize("pause", [0.08, 0.2, 0.35])
def test_sigusr1_around_a_run_asks_for_nothing(config: Path, tmp_path: Path, pause: float) -> None:
    process = start(config, tmp_path / "run", "--steps", 3)
    wait_for(lambda: started(process), process)
    time.sleep(pause)
    while process.poll() is None:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.005)
    _, err = process.communicate()
    assert process.returncode == 0, err


def started(process: subprocess.Popen[str]) -> bool:
    """Whether Python has come to our first lines, by the signals that it ignores."""
    return ignores(process, signal.SIGUSR1)


def ignores(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Whether a process ignores a signal (Linux)."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    mask = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def test_sigusr1_before_the_binary_has_a_run_is_ignored() -> None:
    path = os.environ.get("ANDREA_BINARY") or str(path_of_binary())
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))  # --help cannot be written, so the process stays
    os.set_blocking(writer, True)
    process = subprocess.Popen([path, "--help"], stdout=writer)
    end = time.monotonic() + 20
    while not ignores(process, signal.SIGUSR1) and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.05)
    assert process.poll() is None
    os.close(reader)
    os.close(writer)
    process.wait(timeout=20)


def test_an_interrupted_import_is_quiet(tmp_path: Path) -> None:
    # A module that is imported early, and takes its time: the signal comes in the middle of it.
    (tmp_path / "typer.py").write_text("open('here', 'w').close()\nimport time\ntime.sleep(20)\n")
    process = subprocess.Popen(
        command("doctor"),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
    )
    wait_for((tmp_path / "here").exists, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "")


# ---- terminals and locales


@pytest.mark.parametrize(("columns", "rows"), [(10, 2), (20, 40), (200, 1)])
def test_the_panel_on_odd_terminals(config: Path, tmp_path: Path, columns: int, rows: int) -> None:
    arguments = command("train", config, "--out", tmp_path, "--device", "cpu", "--threads", 1)
    code, shown = on_terminal(columns, rows, arguments)
    assert code == 0, shown
    assert b"Traceback" not in shown
    assert b"display failed" not in shown
    assert (tmp_path / "step_000060.state.json").exists()


def test_the_panel_in_an_ascii_locale(config: Path, tmp_path: Path) -> None:
    arguments = command("train", config, "--out", tmp_path, "--device", "cpu", "--threads", 1)
    code, shown = on_terminal(
        80, 24, arguments, LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert code == 0, shown
    assert b"step 60/60" in shown
    assert b"display failed" not in shown
    assert shown.isascii()


def test_a_display_that_fails_stops_no_training(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(QuietDisplay):
        def say(self, text: str) -> None:
            raise UnicodeEncodeError("ascii", text, 0, 1, "no such sign")

    display = SteadyDisplay(Broken())
    display.say("first")
    display.say("second")
    assert capfd.readouterr().err.count("the display failed") == 1
    with display.running():
        display.say("third")
    assert perplexity(1e6) == math.inf
    assert LiveDisplay(300) is not None
