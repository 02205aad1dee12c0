"""The commands of the train room: what `andrea train`, `plan`, `bench`, `init` and so on do.

Errors are raised; andrea.cli turns them into one line and an exit code. Everything heavy is imported
inside the function that needs it, so that `andrea --help` stays quick.
"""

from __future__ import annotations

import contextlib
from enum import Enum
from pathlib import Path
from typing import Annotated, TypedDict

import typer

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment, a JSON file.")]


# What the engine counts with: 32 bits, and no machine has more threads than this.
LARGEST = 2**31 - 1
MOST_THREADS = 4096
MOST_ROWS = 2**24


class Device(str, Enum):
    """Where to run."""

    cpu = "cpu"
    cuda = "cuda"
    auto = "auto"


class Precision(str, Enum):
    """Arithmetic of activations and matrix products."""

    fp32 = "fp32"
    fp16 = "fp16"
    bf16 = "bf16"
    fp8 = "fp8"


class SizeName(str, Enum):
    """The named sizes."""

    nano = "NANO"
    m12 = "12M"
    m120 = "120M"
    m480 = "480M"


class Recompute(str, Enum):
    """What the backward pass computes again instead of keeping it."""

    auto = "auto"
    nothing = "nothing"
    gelu = "gelu"
    cheap = "cheap"
    layer = "layer"


DeviceOption = Annotated[Device, typer.Option("--device", help="cpu, cuda or auto.")]
PrecisionOption = Annotated[
    Precision | None, typer.Option("--precision", help="Instead of the experiment's.", show_default=False)
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=MOST_THREADS,
        help="CPU threads; they never change the results.",
        show_default="all",
    ),
]


def _size(text: str | None) -> str | None:
    """Refuse a size that is none: a mistake of the command line, not of the experiment."""
    if text is not None:
        from andrea._core import parse_bytes
        from andrea.errors import ConfigError

        try:
            if parse_bytes(text) < 1:
                raise typer.BadParameter(f"{text}: a size above 0 is needed")
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from error
    return text


MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        callback=_size,
        help="Budget of the plan, such as 24GB.",
        show_default="free",
    ),
]
BatchOption = Annotated[
    int | None,
    typer.Option(
        "--batch-size", min=1, max=MOST_ROWS, help="Instead of the experiment's.", show_default=False
    ),
]
MicroBatchesOption = Annotated[
    int | None,
    typer.Option(
        "--micro-batches", min=1, max=MOST_ROWS, help="Instead of the experiment's.", show_default=False
    ),
]
RecomputeOption = Annotated[
    Recompute | None,
    typer.Option("--recompute", help="What the backward pass computes again.", show_default=False),
]


def train(
    config: Config,
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run directory.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest good checkpoint.")] = False,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, max=LARGEST, help="End this process after step N of the run."),
    ] = None,
    device: DeviceOption = Device.auto,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, max=2**32 - 1)] = None,
    memory: MemoryOption = None,
    from_bin: Annotated[
        Path | None,
        typer.Option("--from", metavar="X.bin", help="Start from it, data order anew."),
    ] = None,
    allow_data_change: Annotated[
        bool, typer.Option("--allow-data-change", help="Resume although tokenizer or data differ.")
    ] = False,
    allow_config_change: Annotated[
        bool, typer.Option("--allow-config-change", help="Resume although other keys differ.")
    ] = False,
    polish: Annotated[
        bool, typer.Option("--polish", help="Resume under a new experiment; samples and state are archived.")
    ] = False,
    past_gate: Annotated[
        bool, typer.Option("--past-gate", help="Resume a run that the coherence gate stopped.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Warnings and errors only.")] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve a dashboard of this run while it trains.")
    ] = False,
) -> None:
    """Train the model of an experiment.

    SIGTERM or Ctrl-C: finish the step, save, exit 75. SIGUSR1: save and go on. Exit codes: 0 finished, 75
    stopped early and saved, 79 stopped by the coherence gate, 64 usage, 65 bad data, 74 input/output, 78 bad
    experiment, 70 internal.
    """
    from andrea._core import SignalHandlers, load_experiment
    from andrea.train.display import make_display
    from andrea.train.run import RunOptions, settings_of
    from andrea.train.run import train as run

    experiment = load_experiment(str(config))
    options = RunOptions(
        resume=resume,
        steps=steps,
        device=device.value,
        precision=precision.value if precision else None,
        threads=threads,
        seed=seed,
        memory=memory,
        from_bin=from_bin,
        allow_data_change=allow_data_change,
        allow_config_change=allow_config_change,
        polish=polish,
        past_gate=past_gate,
    )
    display = make_display(settings_of(experiment)["model"]["vocab_size"], quiet)
    beside: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if dashboard:
        from andrea.dashboard.server import dashboard_beside

        beside = dashboard_beside(out, display.say)
    with beside, SignalHandlers():
        code = run(experiment, out, options, display)
    raise typer.Exit(code)


class Changes(TypedDict):
    """What `plan` and `bench` change of an experiment, as the engine takes it; None: nothing."""

    precision: str | None
    batch_size: int | None
    micro_batches: int | None
    recompute: str | None


def _changes(
    precision: Precision | None, batch: int | None, micro_batches: int | None, recompute: Recompute | None
) -> Changes:
    return {
        "precision": precision.value if precision else None,
        "batch_size": batch,
        "micro_batches": micro_batches,
        "recompute": recompute.value if recompute else None,
    }


def plan(
    config: Config,
    memory: MemoryOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every buffer, for programs.")] = False,
    precision: PrecisionOption = None,
    device: DeviceOption = Device.auto,
    threads: ThreadsOption = None,
    batch_size: BatchOption = None,
    micro_batches: MicroBatchesOption = None,
    recompute: RecomputeOption = None,
) -> None:
    """Show what a run would need, byte by byte, without allocating it. Exit 78 if it does not fit.

    A GPU that is not here is planned by rule: --device cuda --memory 24GB.
    """
    import json

    from andrea._core import plan_report

    report = plan_report(
        config,
        device.value,
        threads,
        memory,
        **_changes(precision, batch_size, micro_batches, recompute),
    )
    print(json.dumps(report.data, indent=2) if as_json else report.text.rstrip("\n"))
    raise typer.Exit(0 if report.fits else 78)


def bench(
    config: Config,
    as_json: Annotated[bool, typer.Option("--json", help="The report for programs.")] = False,
    device: DeviceOption = Device.auto,
    precision: PrecisionOption = None,
    batch_size: BatchOption = None,
    micro_batches: MicroBatchesOption = None,
    recompute: RecomputeOption = None,
    steps: Annotated[
        int, typer.Option("--steps", min=0, max=1_000_000, help="Timed steps; 0: 40 on a GPU, 5 on the CPU.")
    ] = 0,
    only: Annotated[
        str, typer.Option("--only", metavar="NAME", help="Operations whose name begins so; none: no table.")
    ] = "",
    memory: MemoryOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Measure a training step of an experiment and its operations on this device, with random ids."""
    import json

    from andrea._core import run_bench

    try:
        report = run_bench(
            config,
            device.value,
            threads,
            memory,
            **_changes(precision, batch_size, micro_batches, recompute),
            steps=steps,
            only=only,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--only") from error
    print(json.dumps(report.data, indent=2) if as_json else report.text.rstrip("\n"))


def init(
    size: Annotated[SizeName, typer.Option("--size", case_sensitive=False, help="The named shape.")],
    data: Annotated[
        list[Path], typer.Option("--data", metavar="FILES", help="Text files or folders: one source each.")
    ],
    more: Annotated[list[Path] | None, typer.Argument(metavar="[FILES]", help="More of them.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where all of it goes.")] = None,
    segments: Annotated[
        int | None,
        typer.Option("--segments", min=1, max=LARGEST, help="N of the tokenizer, instead of the size's."),
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of documents kept for evaluation.")] = 0.01,
) -> None:
    """Make an experiment of your own text: tokenizer, packed sources and config, ready for `andrea train`."""
    from andrea.train.starter import start

    target = out or Path(f"andrea-{size.value.lower()}")
    for line in start(size.value, [*data, *(more or [])], target, segments, holdout):
        print(line)


def check(
    config: Config,
    files: Annotated[bool, typer.Option("--files", help="Verify tokenizer and sources too.")] = False,
) -> None:
    """Check an experiment: every fault at once, each with its place and the nearest right key."""
    from andrea._core import load_experiment
    from andrea.train.check import checked_lines

    for line in checked_lines(load_experiment(str(config)), config, files):
        print(line)


def doctor() -> None:
    """Say what was built, what is on this machine, and what is missing."""
    from andrea.train.doctor import doctor_lines

    for line in doctor_lines():
        print(line)
