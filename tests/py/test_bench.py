"""`andrea bench` and `microgpt_train --bench`: the same measurement, for people and for programs.

And the scripts of bench/: whatever is wrong with their input ends them with one line, not with a traceback.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from andrea.binary import path_of_binary
from tiny_run import cli, make_experiment

SCRIPTS = Path(__file__).parents[2] / "bench"
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


@pytest.fixture
def script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[object, str, str]]:
    """Return a function that runs a script of bench/ in an empty folder; returns exit code and output."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setenv("OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY", "passive"))
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: object) -> tuple[object, str, str]:
        monkeypatch.setattr("sys.argv", [str(SCRIPTS / name), *map(str, arguments)])
        code: object = 0
        try:
            runpy.run_path(str(SCRIPTS / name), run_name="__main__")
        except SystemExit as end:
            code = end.code
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


WRONG_USE = """
checkpoint_cost.py CONFIG --every 0 | argument --every: "0" is no whole number from 3
checkpoint_cost.py CONFIG --every 100 --steps 105 | --steps must be more than 105
checkpoint_cost.py missing.json | no such experiment file: missing.json
checkpoint_cost.py shapes/a.json | shapes/a.json: 4 faults; name: is missing
checkpoint_cost.py CONFIG --device cpu | files of the experiment are missing: alpha (train)
curriculum_coherence.py missing.json | no such experiment file: missing.json
curriculum_coherence.py CONFIG --tokens 0 | argument --tokens: "0" is no whole number
curriculum_coherence.py CONFIG --windows -1 | argument --windows: "-1" is no whole number
curriculum_compare.py missing.json --out out | no such experiment file: missing.json
curriculum_compare.py CONFIG --out out --only zzz | argument --only: "zzz" is none of ucb1_dice, uniform
curriculum_compare.py CONFIG --out out --seeds a | argument --seeds: "a" is no whole number from 0
curriculum_compare.py CONFIG --out out --seeds 1,1 | argument --seeds: "1,1" names a value twice
curriculum_compare.py CONFIG --out out --steps 0 | argument --steps: "0" is no whole number
curriculum_compare.py CONFIG --out out --json none/x | there is no folder none; make it first
curriculum_cost.py --rows 0 | argument --rows: "0" is no whole number
curriculum_cost.py --step-ms nan | argument --step-ms: "nan" is no number above 0
curriculum_simulate.py --seeds 0 | argument --seeds: "0" is no whole number
dashboard_load.py --loads 0 | argument --loads: "0" is no whole number
dashboard_load.py --steps 1 | argument --steps: "1" is no whole number from 200000
data_prep.py missing.jsonl | missing.jsonl: No such file or directory; check the path
data_prep.py shapes/empty | shapes/empty holds no rows
data_prep.py shapes/broken.json | shapes/broken.json, line 1: no JSON
data_prep.py shapes/l.json | shapes/l.json, line 1: must be an object
data_prep.py shapes/a.json | shapes/a.json: no row has turns or a text
data_prep.py --megabytes 0 | argument --megabytes: "0" is no whole number
fits.py --sizes 13M | argument --sizes: "13M" is none of 12M, 120M, 480M
fits.py --sizes NANO | argument --sizes: "NANO" is none of
fits.py --cards abc | argument --cards: "abc" is no number above 0
fits.py --cards= | argument --cards: "" is no number above 0
fits.py --cards nan | argument --cards: "nan" is no number above 0
fits.py --cards 1e300 | argument --cards: "1e300" is no number above 0
fits.py --cards 0.5 | --cards: 0.5 GiB leave nothing beside the --reserve of 0.75 GiB
fits.py --reserve inf | argument --reserve: "inf" is no number from 0
fits.py --precisions fp9 | argument --precisions: "fp9" is none of fp32, fp16, bf16, fp8
generation.py --device cpu --precision fp8 | precision fp8: the CPU back end computes in fp32 only
generation.py --batches 0 | argument --batches: "0" is no whole number
generation.py --batches 2000 | sequences: must be 1 to 1024, is 2000
generation.py --rounds 0 | argument --rounds: "0" is no whole number
precisions.py CONFIG | --out: where the runs go
precisions.py CONFIG --out out --precisions fp32,fp7 | argument --precisions: "fp7" is none of
precisions.py CONFIG --out out --precisions fp32 | --reference fp16 is not among --precisions
precisions.py CONFIG --out shapes | shapes/fp16 is there already: choose another --out
precisions.py CONFIG --out out --binary /none | cannot start /none: No such file or directory
precisions.py CONFIG --out out --figure x.jpeg | argument --figure: "x.jpeg" must end in .svg or .png
precisions.py missing.json --out out | no such experiment file: missing.json
precisions.py --from missing.json | --from missing.json: No such file or directory
precisions.py --from shapes/a.json | --from shapes/a.json: Object missing required field `name`
precisions.py --from shapes/l.json | --from shapes/l.json: Expected `object`, got `array`
precisions.py --from shapes/broken.json | --from shapes/broken.json: Expecting
precisions.py --from shapes/run.json | --from shapes/run.json: holds no run in fp16
scaling.py | name an experiment to measure, or kept figures with --from
scaling.py missing.json | no such experiment file: missing.json
scaling.py CONFIG --binary /none | cannot start /none: No such file or directory; build microgpt_train
scaling.py CONFIG --binary /bin/true | /bin/true --bench --json printed no report
scaling.py CONFIG --batches a | argument --batches: "a" is no whole number
scaling.py CONFIG --batches= --micro-batches= --contexts= | nothing to measure
scaling.py CONFIG --precisions fp8 --device cpu | nothing was measured: microgpt_train: precision fp8
scaling.py CONFIG --batches= --micro-batches= --contexts 7 | --contexts: none divides the 256 tokens
scaling.py CONFIG --json shapes | argument --json: "shapes" is a folder
scaling.py --from shapes/a.json | --from shapes/a.json: Object missing required field `name`
scaling.py --from shapes/l.json | --from shapes/l.json: Expected `object`, got `array`
scaling.py --from shapes/point.json | --from shapes/point.json: points[0]: Object missing required field
torch_step.py missing.json | no such experiment file: missing.json
torch_step.py shapes/a.json | shapes/a.json: 4 faults
torch_step.py CONFIG --rounds 0 | argument --rounds: "0" is no whole number
torch_step.py CONFIG --precision fp7 | argument --precision: "fp7" is none of
torch_step.py CONFIG --device cpu --binary /none | cannot start /none
"""


@pytest.mark.parametrize("case", WRONG_USE.strip().splitlines(), ids=lambda case: case.partition(" | ")[0])
def test_wrong_input_ends_a_script_with_one_line(
    config: Path, script: Callable[..., tuple[object, str, str]], case: str
) -> None:
    shapes = Path("shapes")
    (shapes / "fp16").mkdir(parents=True)
    run = {"seconds": 1, "losses": [[0, 1.5]], "bits_per_byte": None, "saturated": None}
    for name, text in {
        "empty": "",
        "broken.json": "{",
        "a.json": '{"a": 1}',
        "l.json": "[]",
        "point.json": '{"name": "n", "device": null, "points": [{"series": "batch"}]}',
        "run.json": json.dumps({"name": "n", "reference": "fp16", "runs": {"fp32": run}}),
    }.items():
        (shapes / name).write_text(text)
    line, _, says = case.partition(" | ")
    name, *arguments = [str(config) if word == "CONFIG" else word for word in line.split()]
    code, out, err = script(name, *arguments)
    assert isinstance(code, int)
    assert code != 0
    assert "Traceback" not in err
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith(f"{name}: error: ")
    assert says in last
    assert list(config.parent.glob(".*")) == []  # nothing is left beside the experiment


def test_what_fits_is_planned_from_any_folder(script: Callable[..., tuple[object, str, str]]) -> None:
    code, out, err = script("fits.py", "--cards", "8,0.8", "--sizes", "12M", "--precisions", "fp8")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "| size | precision | 8 GiB | 0.8 GiB |"
    assert out.splitlines()[2].endswith(" | - / - / - |")


def test_kept_figures_are_shown_again(script: Callable[..., tuple[object, str, str]], config: Path) -> None:
    few = ("--batches", "1", "--micro-batches=", "--contexts", "16,4096", "--steps", 1, "--json", "kept.json")
    code, measured, _ = script("scaling.py", config, "--device", "cpu", "--precisions", "fp32", *few)
    assert code == 0
    assert [line.split(" | ")[1] for line in measured.splitlines() if line[2:3].isdigit()] == [
        "1 x 32 x 1",
        "16 x 16 x 1",
    ]
    assert script("scaling.py", "--from", "kept.json") == (0, measured, "")
