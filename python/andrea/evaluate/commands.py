"""The commands `andrea eval` and `andrea judge`.

Errors are raised; andrea.cli turns them into one line and an exit code.
"""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from andrea.train.commands import Device, DeviceOption, ThreadsOption

if TYPE_CHECKING:
    from andrea.evaluate.judge import Judgement
    from andrea.evaluate.loss import Figure, SourceLoss
    from andrea.generate.model import TrainedModel

AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
EXIT_IO = 74
_MOST_RUBRIC = 1 << 20  # bytes; it travels with each question


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run directory or a .bin.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", metavar="X.btok", help="Packed text; repeatable.", show_default="held-out files"
        ),
    ] = None,
    max_windows: Annotated[
        int | None,
        typer.Option("--max-windows", min=1, help="So many, spread over a file.", show_default="all"),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, max=4096, help="Windows read at once.")] = 8,
    as_json: AsJson = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="The experiment, for a .bin outside its run directory.")
    ] = None,
    device: DeviceOption = Device.auto,
    threads: ThreadsOption = None,
) -> None:
    """Loss, perplexity and bits per byte of each source, with standard errors over windows.

    Without --data: the held-out files of the experiment. A file of another tokenizer is refused (65).
    """
    from andrea.errors import ConfigError
    from andrea.evaluate.loss import evaluate_source
    from andrea.generate.model import Reader, load_model

    trained = load_model(model, config, Reader(device.value, threads, rows=batch))
    for note in trained.notes:
        print(f"[{note}]", file=sys.stderr)
    files = _files(trained, data or [])
    if not files:
        raise ConfigError(_nothing_held_out(model, trained))
    results = []
    for name, path in files:
        results.append(evaluate_source(trained, name, path, max_windows, batch, _progress))
    if as_json:
        mean = sum(result.bits_per_byte.value for result in results) / len(results)
        report = {
            "checkpoint": str(trained.checkpoint),
            "step": trained.engine.steps_done,
            "n_params": trained.engine.n_params,
            "standard_errors_over": "windows",
            "sources": [asdict(result) for result in results],
            "mean_bits_per_byte": mean,
        }
        report = _without_infinity(report)
        print(json.dumps(report, indent=2))
        return
    print(f"{trained.checkpoint}: step {trained.engine.steps_done}, {trained.engine.n_params:,} parameters")
    width = max(6, *(len(result.source) for result in results))
    print(f"{'source':{width}}  {'loss':>17}  {'perplexity':>19}  {'bits per byte':>17}  windows")
    for result in results:
        print(_row(result, width))
    print("values +- standard error over windows")


def _without_infinity(value: Any) -> Any:
    """JSON has no infinity: a perplexity beyond what a float holds becomes null."""
    if isinstance(value, dict):
        return {key: _without_infinity(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_infinity(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _files(trained: TrainedModel, data: list[Path]) -> list[tuple[str, Path]]:
    """Return (name, file) of what is to be read; a file of the experiment has its source's name."""
    sources = json.loads(trained.engine.experiment.effective_json())["data"]["sources"]
    if not data:
        return [(source["name"], Path(source["eval"])) for source in sources if source.get("eval")]
    known = {
        Path(source[kind]).resolve(): source["name"] + ("" if kind == "eval" else " (trained on)")
        for source in sources
        for kind in ("train", "eval")
        if source.get(kind)
    }
    once = {path.resolve(): path for path in data}  # a file that is named twice would count twice in the mean
    return [(known.get(place, path.name.removesuffix(".btok")), path) for place, path in once.items()]


def _nothing_held_out(model: Path, trained: TrainedModel) -> str:
    data = json.loads(trained.engine.experiment.effective_json())["data"]
    trained_on = next((source["train"] for source in data["sources"] if source.get("train")), "X.btok")
    return (
        f"{model}: its experiment names no held-out text (eval). Pack text that is new to it, and name it:\n"
        f"  andrea data pack OTHER.txt --tokenizer {data.get('tokenizer') or 'T'} --out other.btok\n"
        f"  andrea eval {model} --data other.btok\n"
        f"How well it knows what it was trained on: andrea eval {model} --data {trained_on}"
    )


def _row(result: SourceLoss, width: int) -> str:
    def shown(figure: Figure, digits: int) -> str:
        error = "" if figure.standard_error is None else f" +- {figure.standard_error:.{digits}f}"
        return f"{figure.value:.{digits}f}{error}"

    part = f"{result.windows}" + (
        f" of {result.windows_in_file}" if result.windows < result.windows_in_file else ""
    )
    return (
        f"{result.source:{width}}  {shown(result.loss, 4):>17}  {shown(result.perplexity, 2):>19}  "
        f"{shown(result.bits_per_byte, 4):>17}  {part} x {result.window_tokens}"
    )


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\r" if done < total else "\r\033[K"
        print(f"  {done}/{total} windows", end=end, file=sys.stderr, flush=True)


def _show_rubric(wanted: bool) -> None:
    if wanted:
        from andrea.evaluate.judge import default_rubric

        print(default_rubric().rstrip("\n"))
        raise typer.Exit


def judge(
    samples: Annotated[
        Path,
        typer.Argument(metavar="RUN|SAMPLES", help="A run, its .samples.json, or `sample --json` lines."),
    ],
    model: Annotated[str, typer.Option("--model", help="The judging model, as the endpoint names it.")],
    url: Annotated[
        str | None,
        typer.Option("--url", help="Base of the endpoint: https://host/v1. Without: cache only."),
    ] = None,
    key_env: Annotated[
        str | None, typer.Option("--key-env", metavar="NAME", help="The environment variable with the key.")
    ] = None,
    rubric: Annotated[
        Path | None,
        typer.Option("--rubric", metavar="FILE", help="What to score by.", show_default="built in"),
    ] = None,
    show_rubric: Annotated[
        bool,
        typer.Option(
            "--show-rubric", callback=_show_rubric, is_eager=True, help="Print the built-in rubric."
        ),
    ] = False,
    last: Annotated[int | None, typer.Option("--last", min=1, help="The last steps or lines only.")] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", metavar="DIR", show_default="~/.cache/andrea/judge")
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", min=1, max=64, help="Questions at once.")] = 4,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=86400.0, help="Seconds for a whole answer.")
    ] = 60.0,
    retries: Annotated[int, typer.Option("--retries", min=0, max=20, help="After 429, 5xx, no answer.")] = 4,
    body: Annotated[
        str, typer.Option("--body", metavar="JSON", help="Fields for each request; null takes one out.")
    ] = "{}",
    as_json: AsJson = False,
) -> None:
    """Have each sample scored from 0 to 10 by a model behind an OpenAI-compatible chat endpoint.

    Verdicts are kept on disk and not asked for twice. Exit code 74 if a sample has no score; those that have
    one are reported all the same.
    """
    from andrea.evaluate.judge import JudgeCache, default_rubric, judge_samples, mean_of, read_samples
    from andrea.evaluate.judge_client import Endpoint

    text = _rubric(rubric) if rubric else default_rubric()
    extra = _body(body)
    endpoint = None
    if url is not None:
        endpoint = Endpoint(url, model, _key(key_env), extra, timeout, retries)
        if endpoint.key and not url.lower().startswith("https:") and not _loopback(url):
            print("[the key travels unencrypted: --url is http, not https]", file=sys.stderr)
    notes: list[str] = []
    chosen = read_samples(samples, last, notes)
    for note in notes:
        print(f"[{_line(note)}]", file=sys.stderr)
    folder = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "andrea" / "judge"
    judged = judge_samples(
        chosen, text, model, JudgeCache(folder), endpoint, parallel, extra=extra, on_done=_judged_so_far
    )
    mean = mean_of(judged)
    faults = list(dict.fromkeys(one.fault for one in judged if one.verdict is None))
    if as_json:
        print(json.dumps(_report(judged, model, mean, faults), indent=2, ensure_ascii=False))
    else:
        for one in judged:
            score = f"{one.verdict.score:4.1f}" if one.verdict else "   -"
            why = one.verdict.reason if one.verdict else one.fault
            print(f"{one.sample.label:>12}  {score}  {_line(why)}{'  (cached)' if one.cached else ''}")
        print(_summary(judged, mean))
    missing = sum(one.verdict is None for one in judged)
    if missing:
        print(f"andrea: {missing} of {len(judged)} samples have no score:", file=sys.stderr)
        for fault in faults[:5]:
            print(f"  {_line(fault)}", file=sys.stderr)
        raise typer.Exit(EXIT_IO)


def _report(
    judged: list[Judgement], model: str, mean: tuple[float, float | None] | None, faults: list[str]
) -> dict[str, Any]:
    return {
        "model": model,
        "mean": mean[0] if mean else None,
        "standard_error": mean[1] if mean else None,
        "judged": sum(one.verdict is not None for one in judged),
        "cached": sum(one.cached for one in judged),
        "samples": [
            {
                "label": one.sample.label,
                "prompt": one.sample.prompt,
                "text": one.sample.text,
                "score": one.verdict.score if one.verdict else None,
                "reason": one.verdict.reason if one.verdict else "",
                "cached": one.cached,
                "fault": one.fault,
            }
            for one in judged
        ],
        "faults": faults,
    }


def _summary(judged: list[Judgement], mean: tuple[float, float | None] | None) -> str:
    if mean is None:
        return "no sample was judged"
    error = "" if mean[1] is None else f" +- {mean[1]:.2f}"
    count = sum(one.verdict is not None for one in judged)
    cached = sum(one.cached for one in judged)
    return f"mean {mean[0]:.2f}{error} of 10 over {count} samples ({cached} from the cache)"


def _judged_so_far(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(
            f"  {done}/{total} asked", end="\r" if done < total else "\r\033[K", file=sys.stderr, flush=True
        )


def _line(text: str) -> str:
    from andrea.generate.stream import fit_for_terminal

    return " ".join(fit_for_terminal(text).split())


def _rubric(path: Path) -> str:
    from andrea.data.files import read_at_most
    from andrea.errors import DataError

    try:
        text = read_at_most(path, _MOST_RUBRIC).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; save the rubric as UTF-8") from error
    if not text.strip():
        raise DataError(f"{path}: empty; write what the judge shall look at, or leave --rubric out")
    return text


def _body(text: str) -> dict[str, Any]:
    from andrea.errors import ConfigError

    try:
        body = json.loads(text)
        json.dumps(body, allow_nan=False)  # NaN is no JSON for the endpoint
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--body: not JSON ({error})") from error
    if not isinstance(body, dict) or {"model", "messages", "stream"} & body.keys():
        raise ConfigError("--body: an object without model, messages and stream is needed")
    return body


def _key(name: str | None) -> str:
    from andrea.errors import ConfigError

    if name is None:
        return ""
    key = os.environ.get(name, "").strip()
    if not key:
        raise ConfigError(
            f"--key-env {name}: this environment variable is not set; export it, or leave the option out"
        )
    return key


def _loopback(url: str) -> bool:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
