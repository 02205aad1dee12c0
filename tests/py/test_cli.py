"""The `andrea` command and `microgpt_train`: help, plans, checks, messages and exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from andrea.binary import path_of_binary
from andrea.generate.stream import fit_for_terminal
from andrea.train.display import curve, duration
from andrea.train.sizes import SIZES
from tiny_run import cli, command, make_experiment, on_terminal, train, words

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny experiment with its data."""
    return make_experiment(tmp_path_factory.mktemp("cli"))


def binary(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the binary of this installation, or the one that ANDREA_BINARY names."""
    path = os.environ.get("ANDREA_BINARY") or str(path_of_binary())
    return subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_help_names_every_command_quickly() -> None:
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        result = cli("--help", COLUMNS="100")
        times.append(time.perf_counter() - begun)
    assert result.returncode == 0
    for name in ("init", "check", "plan", "train", "sample", "doctor", "data", "tokenizer"):
        assert re.search(rf"\b{name}\b", result.stdout), name
    bare = []
    for _ in range(3):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import typer"], check=True)
        bare.append(time.perf_counter() - begun)
    assert min(times) < 0.5 or min(times) < 5 * min(bare), "the command has become slow to start"


def test_importing_andrea_loads_nothing_heavy() -> None:
    heavy = "numpy torch pyarrow rich typer pydantic starlette andrea._core andrea.tokenizer"
    code = f"import andrea, sys; print([m for m in '{heavy}'.split() if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    import andrea

    for name in andrea.__all__:
        assert getattr(andrea, name) is not None
    assert set(andrea.__all__) <= set(dir(andrea))
    with pytest.raises(AttributeError, match="engin"):
        andrea.engin  # noqa: B018


def test_version_is_one_everywhere() -> None:
    import andrea

    assert cli("--version").stdout == f"andrea {andrea.__version__}\n"
    assert binary("--version").stdout == f"microgpt_train {andrea.__version__}\n"


def test_nothing_asked_for_shows_the_help_alone() -> None:
    for arguments in ((), ("data",)):
        result = cli(*arguments)
        assert result.returncode == 64
        assert "Commands" in result.stdout + result.stderr
        assert "andrea: " not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trian"], "train"),
        (["train"], "CONFIG"),
        (["train", "x.json"], "--out"),
        (["train", "x.json", "--out", "y", "--resme"], "--resume"),
        (["train", "x.json", "--out", "y", "--threads", "0"], "threads"),
        (["train", "x.json", "--out", "y", "--device", "gpu"], "device"),
        (["sample", "x", "-n", "0"], "-n"),
    ],
)
def test_wrong_use_is_one_line_and_64(arguments: list[str], says: str) -> None:
    result = cli(*arguments)
    assert result.returncode == 64
    assert says in result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--confg", "x"], "--config"),
        (["--config", "x", "--out", "y", "--treads=2"], "--threads"),
        (["--config"], "needs a value"),
        (["--out", "y"], "--config"),
        (["--config", "x"], "--out"),
        (["--config", "x", "--out", "y", "--steps", "many"], "--steps"),
        (["--config", "x", "--out", "y", "--threads", "0"], "--threads"),
        (["--config", "x", "--out", "y", "--memory", "lots"], "--memory"),
        (["--config", "x", "--out", "y", "--precision", "fp7"], "--precision"),
        (["--config", "x", "--out", "y", "--device", "gpu"], "--device"),
        (["--config", "x", "--out", "y", "stray"], "stray"),
    ],
)
def test_wrong_use_of_the_binary_is_one_line_and_64(arguments: list[str], says: str) -> None:
    result = binary(*arguments)
    assert result.returncode == 64
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_binary_has_every_flag_of_train() -> None:
    ours = set(re.findall(r"--[a-z-]+", cli("train", "--help", COLUMNS="200").stdout))
    assert len(ours) > 12
    # A dashboard is a Python program; beside the binary it is started by itself.
    assert ours - {"--dashboard"} <= set(re.findall(r"--[a-z-]+", binary("--help").stdout))


def test_all_faults_of_an_experiment_come_at_once(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(
        json.dumps(
            {
                "name": "bad",
                "model": {"d_modle": 128, "n_head": 3, "n_layer": 4, "context": 64, "vocab_size": 300},
                "train": {"steps": 10, "batch_size": "eight", "lr": {"peek": 1}},
            }
        )
    )
    for result in (cli("check", bad), binary("--config", bad, "--plan")):
        assert result.returncode == 78
        for says in ("model.d_modle", "d_model", "train.batch_size", "train.lr.peek", "peak"):
            assert says in result.stderr, says
        assert "Traceback" not in result.stderr
    bad.write_text(
        json.dumps({"model": {"d_model": 100, "n_head": 3, "n_layer": 1, "context": 8, "vocab_size": 300}})
    )
    assert "n_head" in cli("check", bad).stderr
    bad.write_text("{not json")
    assert cli("check", bad).returncode == 78
    assert cli("check", tmp_path / "absent.json").returncode in (74, 78)


def test_check_opens_files_only_when_asked(config: Path, tmp_path: Path) -> None:
    assert "12,112 parameters" in cli("check", config).stdout
    moved = make_experiment(tmp_path)
    (tmp_path / "alpha.btok").unlink()
    assert cli("check", moved).returncode == 0
    result = cli("check", moved, "--files")
    assert result.returncode in (65, 74)
    assert "alpha.btok" in result.stderr


@pytest.mark.parametrize(
    ("name", "count"),
    [("NANO", 985_472), ("12M", 12_691_584), ("120M", 92_248_320), ("480M", 467_636_736)],
)
def test_the_shipped_sizes_have_their_exact_counts(name: str, count: int) -> None:
    assert SIZES[name].n_params() == count
    result = cli(
        "plan",
        EXPERIMENTS / f"ANDREA-{name}-TRAIN.json",
        "--memory",
        "8000GB",
        "--json",
        "--precision",
        "fp32",
    )
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["n_params"] == count
    assert plan["groups"]["moments"] >= 8 * count


def test_a_plan_that_does_not_fit_names_the_largest_batch(tmp_path: Path) -> None:
    big = make_experiment(tmp_path, train__batch_size=4000)
    result = cli("plan", big, "--threads", 1, "--memory", "64MB")
    assert result.returncode == 78
    largest = int(re.search(r"largest batch_size that fits is (\d+)", result.stdout)[1])
    assert largest > 0
    for batch, fits in ((largest, True), (largest + 1, False)):
        tried = make_experiment(tmp_path, "tried", train__batch_size=batch)
        assert (cli("plan", tried, "--threads", 1, "--memory", "64MB").returncode == 0) is fits
    refused = train(big, tmp_path / "run", "--memory", "64MB")
    assert refused.returncode == 78
    assert str(largest) in refused.stderr
    same = binary("--config", big, "--plan", "--threads", 1, "--memory", "64MB")
    assert same.returncode == 78
    assert f"largest batch_size that fits is {largest}" in same.stdout


@pytest.fixture(scope="module")
def finished(config: Path) -> Path:
    """Return a finished run."""
    run = config.parent / "finished"
    result = train(config, run, "--quiet")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    return run


def test_sampling_is_repeatable_and_takes_a_run_or_a_checkpoint(finished: Path) -> None:
    flags = ("--prompt", " the", "--tokens", 20, "--device", "cpu", "--threads", 1)
    first = cli("sample", finished, *flags)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith(" the")
    assert len(first.stdout.split()) > 5
    for place in (finished, finished / "tiny.bin", finished / "step_000060.bin"):
        assert cli("sample", place, *flags).stdout == first.stdout
    assert cli("sample", finished, *flags, "--seed", 43).stdout != first.stdout
    assert cli("sample", finished / "step_000020.bin", *flags).stdout != first.stdout
    several = cli("sample", finished, *flags, "-n", 2).stdout
    assert several.count("--- sample") == 2
    greedy = cli("sample", finished, *flags, "--temperature", 0, "--seed", 1).stdout
    assert greedy == cli("sample", finished, *flags, "--temperature", 0, "--seed", 2).stdout


def test_sampling_passes_over_a_broken_checkpoint(finished: Path, tmp_path: Path) -> None:
    for path in finished.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "step_000060.bin").write_bytes(b"short")
    assert cli("sample", tmp_path, "--tokens", 3, "--device", "cpu").returncode == 0
    alone = tmp_path / "alone"
    alone.mkdir()
    assert cli("sample", alone).returncode == 65
    assert cli("sample", tmp_path / "nothing").returncode == 74
    (alone / "x.bin").write_bytes((finished / "tiny.bin").read_bytes())
    result = cli("sample", alone / "x.bin")
    assert result.returncode == 78
    assert "--config" in result.stderr


def test_init_makes_a_run_that_trains(tmp_path: Path) -> None:
    text, more = tmp_path / "first book.txt", tmp_path / "notes"
    text.write_text("\n\n".join(words(400, seed) for seed in range(40)))
    more.mkdir()
    (more / "a.md").write_text("\n\n".join(words(300, seed) for seed in range(50, 70)))
    out = tmp_path / "mine"
    arguments = (
        "init",
        "--size",
        "NANO",
        "--data",
        text,
        more,
        "--out",
        out,
        "--segments",
        60,
        "--holdout",
        0.2,
    )
    result = cli(*arguments)
    assert result.returncode == 0, result.stderr
    made = out / "ANDREA-NANO-TRAIN.json"
    assert f"andrea train {made} --out {out / 'run'}" in result.stdout
    assert cli("check", made, "--files").returncode == 0
    names = [source["name"] for source in json.loads(made.read_text())["data"]["sources"]]
    assert names == ["first-book", "notes"]
    trained = train(made, out / "run", "--steps", 1)
    assert trained.returncode == 0, trained.stderr
    again = cli(*arguments)
    assert again.returncode == 78
    assert "already" in again.stderr
    # Another size would replace the tokenizer and the sources of the first.
    before = (out / "harris_segments.json").read_bytes()
    other = cli("init", "--size", "12M", "--data", text, "--out", out)
    assert other.returncode == 78
    assert str(made) in other.stderr
    assert (out / "harris_segments.json").read_bytes() == before
    in_the_way = cli("init", "--size", "NANO", "--data", text, "--out", text)
    assert in_the_way.returncode == 78
    assert "is a file" in in_the_way.stderr
    absent = cli("init", "--size", "nano", "--data", tmp_path / "absent.txt", "--out", tmp_path / "other")
    assert absent.returncode == 74
    (tmp_path / "empty.txt").write_text(" \n\n")
    nothing = cli(
        "init",
        "--size",
        "nano",
        "--data",
        text,
        "--data",
        tmp_path / "empty.txt",
        "--out",
        tmp_path / "other",
    )
    assert nothing.returncode == 65
    assert f"{tmp_path / 'empty.txt'}: no text in it" in nothing.stderr
    assert not (tmp_path / "other").exists()
    os.mkfifo(tmp_path / "pipe")  # it was waited for without end
    for endless in (tmp_path / "pipe", "/dev/zero"):
        refused = cli("init", "--size", "NANO", "--data", endless, "--out", tmp_path / "other")
        assert refused.returncode == 74
        assert "more than once" in refused.stderr


def test_small_texts_are_evaluated_too(tmp_path: Path) -> None:
    """Two kilobytes in few documents: 1 % of them is none, and `andrea eval RUN` had nothing to read."""
    small, sentence = tmp_path / "small.txt", tmp_path / "sentence.txt"
    small.write_text("\n\n".join(words(35, seed) for seed in range(14)))
    sentence.write_text("The cat sat on the mat.\n")
    for text, held in ((small, True), (sentence, False)):
        out = tmp_path / text.stem
        made = cli("init", "--size", "NANO", "--data", text, "--out", out)
        assert made.returncode == 0, made.stderr
        assert (f"andrea eval {out / 'run'}" in made.stdout) == held
        config = out / "ANDREA-NANO-TRAIN.json"
        settings = json.loads(config.read_text())
        settings["train"]["batch_size"] = 1
        config.write_text(json.dumps(settings))
        assert train(config, out / "run", "--steps", 1).returncode == 0
        measured = cli("eval", out / "run")
        if held:
            assert measured.returncode == 0, measured.stderr
            (source,) = settings["data"]["sources"]
            assert (out / source["eval"]).stat().st_size < (out / source["train"]).stat().st_size
            continue
        assert measured.returncode == 78
        _, pack, new, old = measured.stderr.splitlines()
        packed = tmp_path / "other.btok"
        for line in (pack, new, old[old.index("andrea eval") :]):
            line = line.replace("OTHER.txt", str(small)).replace("other.btok", str(packed))
            did = cli(*line.split()[1:])
            assert did.returncode == 0, did.stderr


def test_doctor_says_what_is_here() -> None:
    result = cli("doctor")
    assert result.returncode == 0, result.stderr
    for says in ("cpu", "arithmetic", "cores", "memory", "g++"):
        assert says in result.stdout


def test_a_terminal_gets_a_panel_and_a_log_gets_lines(config: Path, tmp_path: Path) -> None:
    log = train(config, tmp_path / "log").stdout
    assert re.search(r"^step 60/60  loss \d+\.\d{4}  smma ", log, re.MULTILINE)
    assert "\x1b" not in log
    arguments = command("train", config, "--out", tmp_path / "terminal", "--device", "cpu", "--threads", 1)
    code, shown = on_terminal(120, 40, arguments, TERM="xterm-256color", COLUMNS="120")
    assert code == 0
    text = shown.decode()
    for says in ("step 60/60", "perplexity", "ln V = 5.802", "tok/s", "memory", "finished: 60 steps"):
        assert says in text, says


def test_errors_are_not_tracebacks_unless_asked(tmp_path: Path) -> None:
    plain = cli("check", tmp_path / "absent.json")
    assert "Traceback" not in plain.stderr
    assert "Traceback" in cli("check", tmp_path / "absent.json", ANDREA_DEBUG="1").stderr


def closed_pipe(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run with nobody reading standard output."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)


def test_a_closed_log_is_no_traceback_and_stops_no_training(config: Path, tmp_path: Path) -> None:
    result = closed_pipe(command("check", config))
    assert (result.returncode, result.stderr) == (74, "")
    run = tmp_path / "run"
    trained = closed_pipe(command("train", config, "--out", run, "--device", "cpu", "--steps", 20))
    assert trained.returncode == 0, trained.stderr
    assert (run / "step_000020.state.json").exists()
    path = os.environ.get("ANDREA_BINARY") or str(path_of_binary())
    run = tmp_path / "binary"
    arguments = [path, "--config", str(config), "--out", str(run), "--device", "cpu", "--steps", "20"]
    assert closed_pipe(arguments).returncode == 0
    assert (run / "step_000020.state.json").exists()


def test_a_name_that_is_not_utf_8_is_wrong_use(finished: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"x\xff")
    shutil.copytree(finished, odd)
    done = cli("sample", odd, "--tokens", 2)
    assert done.returncode == 64
    assert "is not UTF-8" in done.stderr


def test_groups_are_mounted() -> None:
    from andrea.cli import make_app

    runner = CliRunner()
    for group in ("data", "tokenizer"):
        result = runner.invoke(make_app(group), [group, "--help"])
        assert result.exit_code == 0
        assert "Commands" in result.output


def test_small_pieces_of_the_display() -> None:
    assert duration(3723.4) == "1:02:03"
    assert duration(-1) == duration(float("nan")) == "?"
    assert curve([]) == ""
    assert curve([1.0, 1.0]) == "▁▁"
    assert curve([float("nan"), 2.0, float("inf"), 1.0]) == "█▁"  # a first step may be skipped
    assert curve([3.0, 2.0, 1.0])[0] == "█"
    assert curve([3.0, 2.0, 1.0])[-1] == "▁"
    assert len(curve([float(k) for k in range(1000)])) == 60
    assert fit_for_terminal("a\x1b[31m\n\té\ud800") == "a\ufffd[31m\n\té\ufffd"
