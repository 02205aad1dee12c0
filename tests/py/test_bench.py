"""`andrea bench` and `microgpt_train --bench`: the same measurement, for people and for programs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from andrea.binary import path_of_binary
from tiny_run import cli, make_experiment

FLAGS = ("--device", "cpu", "--threads", 1, "--batch-size", 2, "--micro-batches", 1)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an experiment whose data is not there: a benchmark opens none."""
    config = make_experiment(tmp_path_factory.mktemp("data"))
    for data in config.parent.glob("*.btok"):
        data.unlink()
    return config


def binary(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run microgpt_train."""
    return subprocess.run(
        [str(path_of_binary()), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_both_report_the_same_fields(config: Path) -> None:
    reports = []
    for result in (
        cli("bench", config, *FLAGS, "--steps", 2, "--json"),
        binary("--bench", "--config", config, *FLAGS, "--bench-steps", 2, "--json"),
    ):
        assert result.returncode == 0, result.stderr
        reports.append(json.loads(result.stdout))
    first, second = reports
    assert first.keys() == second.keys()
    assert first["step"]["first_loss"] == second["step"]["first_loss"]
    assert first["step"]["last_loss"] == second["step"]["last_loss"]
    assert (first["batch_size"], first["micro_batches"], first["step"]["steps"]) == (2, 1, 2)
    for report in reports:
        tokens = report["batch_size"] * report["context"]
        assert report["tokens_per_second"] == pytest.approx(tokens / report["step"]["median_ms"] * 1e3)
        for operation in report["operations"]:
            assert operation["floor_ms"] == pytest.approx(
                operation["share_of_roofline"] * operation["ms"], rel=1e-9
            )


def test_the_table_is_for_people_and_can_be_cut(config: Path) -> None:
    result = cli("bench", config, *FLAGS, "--steps", 1, "--only", "mlp_")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert any(line.startswith("mlp_fwd ") for line in lines)
    assert not any(line.startswith("attn_fwd ") for line in lines)
    assert "maker's peak: n/a" in result.stdout


def test_a_filter_that_matches_nothing_lists_what_there_is(config: Path) -> None:
    for result in (
        cli("bench", config, *FLAGS, "--steps", 1, "--only", "zzz"),
        binary("--bench", "--config", config, *FLAGS, "--bench-steps", 1, "--bench-only", "zzz"),
    ):
        assert result.returncode == 64
        assert result.stdout == ""
        assert '"zzz"; there are adamw, attn_bwd, ' in result.stderr.replace("\n", " ")
        assert "-only" in result.stderr
    result = cli("bench", config, *FLAGS, "--steps", 1, "--only", "none", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["operations"] == []


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--recompute", "layr"), "layer"),
        (("--batch-size", "0"), "batch-size"),
        (("--plan",), "exclude each other"),
    ],
)
def test_wrong_use_of_the_binary(config: Path, flags: tuple[str, ...], says: str) -> None:
    result = binary("--config", config, "--bench", *flags)
    assert result.returncode == 64
    assert says in result.stderr


def test_flags_of_a_measurement_are_no_flags_of_a_run(config: Path, tmp_path: Path) -> None:
    result = binary("--config", config, "--out", tmp_path / "run", "--batch-size", 4)
    assert result.returncode == 64
    assert "belong to --plan and --bench" in result.stderr


def test_a_gpu_that_is_not_here_is_planned(config: Path) -> None:
    flags = ("--device", "cuda", "--precision", "fp16", "--memory", "8GB")
    plans = [
        json.loads(cli("plan", config, *flags, "--json", "--recompute", level).stdout)
        for level in ("cheap", "auto")
    ]
    assert [plan["recompute"] for plan in plans] == ["cheap", "nothing"]
    assert [plan["recompute_fixed"] for plan in plans] == [True, False]
    for plan in plans:
        assert plan["groups"]["workspace"] == 32 << 20
        assert plan["fits"]


def test_another_way_to_multiply_is_said_at_the_resume(tmp_path: Path) -> None:
    # Another instruction path stands here for another GPU or another cuBLASLt.
    run = tmp_path / "run"
    flags = ("train", make_experiment(tmp_path / "data"), "--out", run, "--device", "cpu", "--threads", 1)
    assert cli(*flags, "--steps", 10, ANDREA_CPU_PATH="baseline").returncode == 0
    state = json.loads((run / "step_000010.state.json").read_text())
    assert state["gemm_table"]["library"].startswith("OpenBLAS")
    assert state["recompute"] == "gelu"
    same = cli(*flags, "--resume", "--steps", 11, ANDREA_CPU_PATH="baseline")
    assert same.returncode == 0
    assert "bit-exact" not in same.stderr
    other = cli(*flags, "--resume", "--steps", 12, ANDREA_CPU_PATH="avx2")
    if "does not have it" in other.stderr:
        pytest.skip("this processor has no avx2")
    assert other.returncode == 0, other.stderr
    assert "not bit-exact from here: the sums of matrix products" in other.stderr
    assert "path baseline, now by one call a tile, path avx2+fma" in other.stderr
