"""What goes wrong around a run: each fault has its message and exit code, and loses nothing."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import xxhash

from andrea.binary import path_of_binary
from tiny_run import command, history, make_experiment, start, train, wait_for


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny experiment with its data."""
    return make_experiment(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def unbroken(config: Path) -> dict[str, bytes]:
    """Return the history of the run that was never stopped."""
    out = config.parent / "unbroken"
    result = train(config, out)
    assert result.returncode == 0, result.stderr
    return history(out)


def test_out_with_a_run_in_it_is_refused(config: Path, unbroken: dict[str, bytes]) -> None:
    out = config.parent / "unbroken"
    result = train(config, out)
    assert result.returncode == 78
    assert "--resume" in result.stderr
    assert history(out) == unbroken


def test_two_trainers_cannot_share_a_directory(config: Path, tmp_path: Path) -> None:
    busy = make_experiment(config.parent, "busy", train__steps=100_000)
    process = start(busy, tmp_path)
    wait_for(lambda: (tmp_path / "busy.loss.json").exists(), process)
    second = train(busy, tmp_path, "--resume")
    process.terminate()
    process.communicate(timeout=30)
    assert second.returncode == 74
    assert str(process.pid) in second.stderr
    assert process.returncode == 75
    assert train(busy, tmp_path, "--resume", "--steps", 1).returncode == 0  # the lock went with its holder


def copy_run(config: Path, folder: Path) -> Path:
    """Copy the finished run."""
    return Path(shutil.copytree(config.parent / "unbroken", folder))


def flip(path: Path, at: int) -> None:
    """Flip one bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("harm", ["flip bin", "cut bin", "flip state", "no state", "no bin"])
def test_resume_falls_back_to_the_newest_that_verifies(
    config: Path, unbroken: dict[str, bytes], tmp_path: Path, harm: str
) -> None:
    run = copy_run(config, tmp_path / "run")
    newest, state = run / "step_000060.bin", run / "step_000060.state.json"
    if harm == "flip bin":
        flip(newest, 1000)
    elif harm == "cut bin":
        os.truncate(newest, newest.stat().st_size // 2)
    elif harm == "flip state":
        flip(state, state.read_bytes().index(b'"step"') + 1)
    elif harm == "no state":
        state.unlink()
    else:
        newest.unlink()
    before = {path.name for path in run.iterdir()}
    result = train(config, run, "--resume", "--steps", 51)
    assert result.returncode == 0, result.stderr
    assert "step_000060" in result.stderr
    assert "resumed at step 50" in result.stdout
    assert before <= {path.name for path in run.iterdir()}
    result = train(config, run, "--resume")
    assert result.returncode == 0, result.stderr
    assert history(run)["tiny.loss.json"] == unbroken["tiny.loss.json"]
    assert history(run)["step_000060.bin"] == unbroken["step_000060.bin"]


def test_no_checkpoint_that_verifies_is_said(
    config: Path, unbroken: dict[str, bytes], tmp_path: Path
) -> None:
    run = copy_run(config, tmp_path / "run")
    bins = [name for name in unbroken if name.startswith("step_")]
    for name in bins:
        flip(run / name, 100)
    result = train(config, run, "--resume")
    assert result.returncode == 65
    assert all(name.removesuffix(".bin") in result.stderr for name in bins)


def test_resume_refuses_other_data_and_other_settings(tmp_path: Path) -> None:
    config, run = make_experiment(tmp_path), tmp_path / "run"
    assert train(config, run, "--steps", 20).returncode == 0
    text = config.read_text()

    config.write_text(text.replace('"d_model": 16', '"d_model": 32'))
    result = train(config, run, "--resume", "--allow-config-change")
    assert (result.returncode, "12112 parameters" in result.stderr) == (78, True), result.stderr

    config.write_text(text.replace('"peak": 0.003', '"peak": 0.001'))
    result = train(config, run, "--resume", "--steps", 22)
    assert result.returncode == 78
    assert "train.lr.peak: 0.003 -> 0.001" in result.stderr
    result = train(config, run, "--resume", "--steps", 22, "--allow-config-change")
    assert result.returncode == 0, result.stderr
    assert "train.lr.peak" in result.stderr

    config.write_text(text.replace('"peak": 0.003', '"peak": 0.001'))
    swap(tmp_path / "alpha.btok", tmp_path / "beta.btok")
    result = train(config, run, "--resume", "--steps", 24)
    assert (result.returncode, "alpha" in result.stderr) == (65, True), result.stderr
    result = train(config, run, "--resume", "--steps", 24, "--allow-data-change")
    assert result.returncode == 0, result.stderr
    assert len(json.loads((run / "tiny.loss.json").read_text())) == 24


def test_resume_refuses_other_held_out_text(tmp_path: Path) -> None:
    config, run = make_experiment(tmp_path), tmp_path / "run"
    assert train(config, run, "--steps", 20).returncode == 0
    swap(tmp_path / "alpha.eval.btok", tmp_path / "beta.eval.btok")
    result = train(config, run, "--resume", "--steps", 22)
    assert result.returncode == 65
    assert "held-out text of source alpha" in result.stderr
    assert "--allow-data-change" in result.stderr
    result = train(config, run, "--resume", "--steps", 22, "--allow-data-change")
    assert result.returncode == 0, result.stderr
    for shown in (result.stderr, (run / "tiny.events.jsonl").read_text()):
        assert "data changed: held-out text of source beta" in shown


def test_a_state_that_knows_no_held_out_text_is_taken_up(tmp_path: Path) -> None:
    config, run = make_experiment(tmp_path), tmp_path / "run"
    assert train(config, run, "--steps", 20).returncode == 0
    path = run / "step_000020.state.json"
    state = json.loads(path.read_text()) | {"format": 2}
    del state["state_hash"]
    for source in state["sources"]:
        del source["eval_hash"]
    text = json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    path.write_text(json.dumps(state | {"state_hash": xxhash.xxh64_hexdigest(text.encode())}))
    swap(tmp_path / "alpha.eval.btok", tmp_path / "beta.eval.btok")
    result = train(config, run, "--resume", "--steps", 22)
    assert result.returncode == 0, result.stderr
    assert "resumed at step 20" in result.stderr + result.stdout


@pytest.mark.parametrize("program", ["andrea train", "microgpt_train"])
@pytest.mark.parametrize("file", ["alpha.btok", "alpha.eval.btok"])
def test_data_that_is_cut_while_it_is_read_ends_the_run_with_its_name(
    tmp_path: Path, program: str, file: str
) -> None:
    config, run = make_experiment(tmp_path, train__steps=10**6, samples__sample_every=0), tmp_path / "run"
    flags = ["--out", run, "--device", "cpu", "--threads", 1]
    words = [*command("train", config), *flags]
    if program == "microgpt_train":
        words = [path_of_binary(), "--config", config, *flags]
    process = subprocess.Popen(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: bool(list(run.glob("step_*.state.json"))), process)
    whole = (tmp_path / file).read_bytes()
    os.truncate(tmp_path / file, len(whole) // 2)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 74, said
    said = " ".join(said.split())
    assert f"{tmp_path / file} had {len(whole)} bytes" in said
    assert "bring the old file back" in said
    assert '"code":74' in (run / "tiny.events.jsonl").read_text()
    (tmp_path / file).write_bytes(whole)
    newest = max(int(path.name[5:-11]) for path in run.glob("step_*.state.json"))
    again = train(config, run, "--resume", "--steps", newest + 1)
    assert again.returncode == 0, again.stderr
    assert f"resumed at step {newest}" in again.stdout + again.stderr


def test_a_read_behind_the_end_of_a_cut_file_says_so_and_leaves(tmp_path: Path) -> None:
    make_experiment(tmp_path)
    script = (
        "import faulthandler, os, sys\n"
        "from andrea import SignalHandlers\n"
        "from andrea._core import BtokFile\n"
        "faulthandler.enable()\n"
        "file = BtokFile(sys.argv[1])\n"
        "with SignalHandlers():\n"
        "    os.truncate(sys.argv[1], 0) if sys.argv[2] == 'inside' else None\n"
        "    file.document(0)\n"
        "os.truncate(sys.argv[1], 0)\n"
        "file.document(0)\n"
    )
    for where, code, message in (("outside", -7, "Bus error"), ("inside", 74, "beta.btok: cannot be read")):
        path = tmp_path / ("alpha.btok" if where == "outside" else "beta.btok")
        done = subprocess.run(
            [sys.executable, "-c", script, path, where], capture_output=True, text=True, check=False
        )
        assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def swap(one: Path, two: Path) -> None:
    """Swap the contents of two files."""
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def test_a_lone_bin_goes_on_with_a_warning(config: Path, unbroken: dict[str, bytes], tmp_path: Path) -> None:
    lone = tmp_path / "lone.bin"
    lone.write_bytes(unbroken["step_000040.bin"])
    result = train(config, tmp_path / "run", "--from", lone, "--steps", 45)
    assert result.returncode == 0, result.stderr
    assert "starts anew" in result.stderr
    losses = json.loads((tmp_path / "run" / "tiny.loss.json").read_text())
    assert [step for step, _ in losses] == list(range(40, 45))


@pytest.mark.parametrize("damage", ["flip", "cut", "id"])
def test_damaged_sources_are_refused(config: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(config.parent, folder, ignore=shutil.ignore_patterns("unbroken"))
    source = folder / "beta.btok"
    if damage == "flip":
        flip(source, source.stat().st_size - 10)
    elif damage == "cut":
        os.truncate(source, source.stat().st_size - 10)
    else:
        forge_id(source)
    result = train(folder / "tiny.json", tmp_path / "run")
    assert result.returncode == 65, result.stderr
    assert "beta.btok" in result.stderr
    assert not list((tmp_path / "run").glob("step_*"))
    if damage == "id":
        assert "65535" in result.stderr


def forge_id(source: Path) -> None:
    """Put an id beyond the vocabulary into the middle, with a right content hash."""
    import xxhash

    data = bytearray(source.read_bytes())
    data[-20:-18] = b"\xff\xff"
    digest = xxhash.xxh64_intdigest(bytes(data[64:]))
    at = data.index(xxhash.xxh64_intdigest(source.read_bytes()[64:]).to_bytes(8, "little"))
    data[at : at + 8] = digest.to_bytes(8, "little")
    source.write_bytes(data)


def test_the_wrong_tokenizer_is_refused(config: Path, tmp_path: Path) -> None:
    from andrea import Tokenizer

    folder = tmp_path / "copy"
    shutil.copytree(config.parent, folder, ignore=shutil.ignore_patterns("unbroken"))
    path = str(folder / "harris_segments.json")
    segments = list(Tokenizer.load(path).segments)
    Tokenizer.from_segments(segments[::-1]).save(path)
    result = train(folder / "tiny.json", tmp_path / "run")
    assert result.returncode == 65, result.stderr
    assert "tokenizer" in result.stderr
    Tokenizer.from_segments(segments[:-1]).save(path)
    result = train(folder / "tiny.json", tmp_path / "run2")
    assert result.returncode in (65, 78)
    assert "331" in result.stderr
    assert "330" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small tmpfs")
def test_a_full_disk_stops_nothing(config: Path, unbroken: dict[str, bytes], tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(tmp_path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    ballast, run = tmp_path / "ballast", tmp_path / "run"
    try:
        ballast.write_bytes(bytes(1_100_000))  # room for two checkpoints, not for five
        result = train(config, run)
        assert "Traceback" not in result.stderr
        assert "step_0000" in result.stderr
        assert result.returncode == 74, result.stderr  # the last one could not be saved
        assert sorted(run.glob("step_*.state.json"))
        ballast.unlink()
        result = train(config, run, "--resume")
        assert result.returncode == 0, result.stderr
        assert history(run)["tiny.loss.json"] == unbroken["tiny.loss.json"]
        assert history(run)["step_000060.bin"] == unbroken["step_000060.bin"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_file_size_limit_is_not_the_end(config: Path, tmp_path: Path) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        command("train", config, "--out", tmp_path, "--device", "cpu", "--steps", 12),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 74, done.stderr  # nothing at all could be saved by the end
    assert not list(tmp_path.glob("step_*.bin"))
    assert not [path for path in tmp_path.iterdir() if "tmp" in path.name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_place_is_said(config: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    result = train(config, tmp_path / "run")
    assert result.returncode == 74
    assert str(tmp_path) in result.stderr


def test_a_file_in_the_way_is_said(config: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a folder")
    result = train(config, tmp_path / "run")
    assert result.returncode == 74
    assert str(tmp_path / "run") in result.stderr
