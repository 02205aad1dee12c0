"""Which checkpoint a model is loaded from: one answer for sample, chat, eval, export and train --from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from andrea import CheckpointError, ConfigError, DataError, IoError, Tokenizer
from andrea.cli import run as command
from andrea.model_source import find_model
from andrea.train.run import RunOptions, train
from tiny_run import make_experiment


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of 20 steps with checkpoints at 10 and 20; its experiment lies beside it as tiny.json."""
    folder = tmp_path_factory.mktemp("source")
    config = make_experiment(folder, train__steps=20, samples__sample_every=0)
    assert train(config, folder / "run", RunOptions(device="cpu", threads=1)) == 0
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """Return a copy of the run that a test may spoil."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def damage(path: Path) -> None:
    """Change a digit of one weight: the file stays whole, its hash does not."""
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)


def uses(what: Path, *flags: object) -> list[list[str]]:
    """Return a command line of each command that loads a model."""
    at = [what, *flags, "--device", "cpu", "--threads", 1]
    lines = [
        ["sample", *at, "--tokens", 1],
        ["chat", *at, "-m", "the", "--tokens", 1],
        ["eval", *at, "--max-windows", 1],
        [
            "export",
            what,
            *flags,
            "--format",
            "safetensors",
            "--out",
            what.parent / "out.safetensors",
            "--force",
        ],
    ]
    return [[str(word) for word in line] for line in lines]


@pytest.mark.parametrize("name", ["step_000020.bin", "tiny.bin", "tiny-best.bin"])
@pytest.mark.parametrize("with_config", [False, True])
def test_a_bin_that_its_state_does_not_know_is_refused_by_all(
    trained: Path, run: Path, name: str, with_config: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run / name)
    flags = ["--config", trained.parent / "tiny.json"] if with_config else []
    for line in uses(run / name, *flags):
        assert command(line) == 65, line
        said = " ".join(capsys.readouterr().err.split())
        assert f"{run / name} has hash" in said, line
        assert "use an older checkpoint" in said, line


def test_training_does_not_begin_from_it_either(trained: Path, run: Path) -> None:
    damage(run / "step_000020.bin")
    options = RunOptions(device="cpu", threads=1, from_bin=run / "step_000020.bin")
    with pytest.raises(CheckpointError, match=r"step_000020.bin has hash"):
        train(trained.parent / "tiny.json", run.parent / "other", options)
    (run / "step_000020.state.json").unlink()
    assert train(trained.parent / "tiny.json", run.parent / "alone", options) == 0


def test_a_bin_alone_is_used_with_its_experiment(
    trained: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = tmp_path / "sub" / "mine.bin"
    alone.parent.mkdir()
    shutil.copy(run / "step_000020.bin", alone)
    for line in uses(alone):
        assert command(line) == 78, line
        said = " ".join(capsys.readouterr().err.split())
        assert "no step_000020.state.json beside it" in said, line
        assert "--config FILE" in said, line
    for line in uses(alone, "--config", trained.parent / "tiny.json"):
        assert command(line) == 0, (line, capsys.readouterr().err)
    # Beside a state of the same step that another .bin was written with, it is still no part of that run.
    damage(alone)
    beside = Path(shutil.copy(alone, run / "mine.bin"))
    with pytest.raises(ConfigError, match="was written with another"):
        find_model(beside)
    assert find_model(beside, trained.parent / "tiny.json").state is None


def test_a_state_that_cannot_be_read_leaves_the_bin_alone(trained: Path, run: Path) -> None:
    state = run / "step_000020.state.json"
    state.write_text(state.read_text().replace('"step": 20', '"step": 21'))
    with pytest.raises(ConfigError, match="is damaged"):
        find_model(run / "step_000020.bin")
    assert find_model(run / "step_000020.bin", trained.parent / "tiny.json").state is None


def test_a_run_gives_its_newest_pair_and_says_what_it_passed_over(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert find_model(run).checkpoint == run / "step_000020.bin"
    assert find_model(run).notes == ()
    damage(run / "step_000020.bin")
    shutil.copy(run / "step_000020.bin", run / "step_000030.bin")
    found = find_model(run)
    assert found.checkpoint == run / "step_000010.bin"
    assert "step_000020.bin has hash" in found.notes[1]
    assert "step_000030.bin" in found.notes[0]
    for line in uses(run):
        assert command(line) == 0
        said = capsys.readouterr()
        assert "passed over: " in said.out + said.err, line
    for step in (10, 20):
        (run / f"step_{step:06}.state.json").unlink()
    with pytest.raises(CheckpointError, match="--config FILE"):
        find_model(run)
    with pytest.raises(IoError, match="no such run"):
        find_model(run / "nowhere")


def test_an_experiment_of_another_model_is_refused_where_the_state_is_known(trained: Path, run: Path) -> None:
    # As many parameters, cut into heads otherwise: only the state can tell.
    heads = make_experiment(trained.parent, "heads", model__n_head=4)
    with pytest.raises(ConfigError, match=r"model.n_head: 2 -> 4"):
        find_model(run, heads)


def test_the_tokenizer_must_be_the_one_of_the_state(trained: Path, run: Path, tmp_path: Path) -> None:
    words = Tokenizer.load(str(trained.parent / "harris_segments.json"))
    others = [f" x{k}" for k in range(words.vocab_size - 257)]
    Tokenizer.from_segments(others).save(str(tmp_path / "harris_segments.json"))
    experiment = json.loads((trained.parent / "tiny.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(experiment))
    with pytest.raises(DataError, match="was trained with"):
        find_model(run, tmp_path / "other.json").tokenizer()


def test_what_is_no_checkpoint_gets_one_answer_from_all(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "lone"
    folder.mkdir()
    (folder / "cut.bin").write_bytes((run / "step_000020.bin").read_bytes()[:5000])
    answers = {
        run / "step_000020.state.json": (65, "is no checkpoint; give a run directory or a .bin"),
        run / "step_000020": (74, f"did you mean {run / 'step_000020.bin'}?"),
        run / "nowhere": (74, "no such run directory or checkpoint; check the path"),
        folder / "cut.bin": (65, "cut short or damaged"),
        folder: (65, "give a run directory that was trained in"),
        tmp_path: (65, f"give one of the runs in it: {run}"),
    }
    for path, (code, answer) in answers.items():
        for line in uses(path):
            assert command(line) == code, line
            said = " ".join(capsys.readouterr().err.split())
            assert str(path) in said, line
            assert answer in said, line
    for path, answer in {
        run / "tiny.bin": "is no run directory; give the directory that the run is in",
        run / "nowhere": "no such run directory; check the path",
        tmp_path: f"give one of the runs in it: {run}",
    }.items():
        assert command(["audit", str(path)]) in (65, 74)
        assert answer in " ".join(capsys.readouterr().err.split())


def test_a_tokenizer_that_was_moved_can_be_named(
    trained: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = json.loads((trained.parent / "tiny.json").read_text())
    settings["data"]["tokenizer"] = "moved.json"
    config = run.parent / "moved-experiment.json"
    config.write_text(json.dumps(settings))
    home = trained.parent / "harris_segments.json"
    moved = home.rename(run.parent / "moved.json")
    try:
        for line in uses(run)[:1] + uses(run)[3:]:
            assert command(line) == 74
            assert (
                "put it back, or name its place in an experiment given by --config" in capsys.readouterr().err
            )
        for line in uses(run, "--config", config)[:1] + uses(run, "--config", config)[3:]:
            assert command(line) == 0, capsys.readouterr().err
    finally:
        moved.rename(home)
