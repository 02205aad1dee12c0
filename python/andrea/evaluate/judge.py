"""The external judge: a score from 0 to 10 for each sample, remembered on disk.

A verdict is kept under the hash of all that it depends on: model, rubric, prompt, text and extra fields of
the request. What is there already is not asked again, and is reported although the endpoint is dead.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event
from typing import Any

from andrea.curriculum.runs import elements_of, require_regular
from andrea.data.files import read_at_most, write_bytes
from andrea.errors import DataError, IoError
from andrea.evaluate.judge_client import (
    BusyError,
    Endpoint,
    EndpointError,
    JudgeError,
    Verdict,
    ask,
    read_verdict,
)

_MOST_BYTES = 1 << 28  # of samples
_FORMAT = 1  # of the question below and of the cache
_ANSWER = (
    'Answer with one JSON object and nothing else: {"score": a number from 0 to 10, "reason": "one sentence"}'
)


@dataclass(frozen=True)
class JudgedText:
    """A sample to be judged. `label` says where it comes from, such as "step 300"."""

    text: str
    prompt: str = ""
    label: str = ""


@dataclass(frozen=True)
class Judgement:
    """What came of a sample: a verdict, or why there is none."""

    sample: JudgedText
    verdict: Verdict | None
    cached: bool = False
    fault: str = ""


def default_rubric() -> str:
    """Return the rubric that comes with andrea."""
    return resources.files("andrea.evaluate").joinpath("rubric.txt").read_text(encoding="utf-8")


def messages_for(rubric: str, sample: JudgedText) -> list[dict[str, str]]:
    """Return the question: rubric and form of the answer as the system's part, the sample as JSON.

    JSON strings cannot be closed by what the sample says.
    """
    shown = {"prompt": sample.prompt, "sample": sample.text} if sample.prompt else {"sample": sample.text}
    shown = {key: text.encode("utf-8", "replace").decode() for key, text in shown.items()}
    return [
        {"role": "system", "content": f"{rubric.strip()}\n\n{_ANSWER}"},
        {"role": "user", "content": json.dumps(shown, ensure_ascii=False)},
    ]


class JudgeCache:
    """Verdicts in a folder, a small JSON file each, written whole or not at all. Holds no key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, model: str, rubric: str, sample: JudgedText, body: dict[str, Any]) -> Path:
        """Return the file that a verdict has."""
        facts = [_FORMAT, model, rubric.strip(), sample.prompt, sample.text, body]
        # Lone surrogates may stand in a text, so the JSON is kept in ASCII.
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode("ascii")).hexdigest()
        return self.folder / digest[:2] / f"{digest}.json"

    def get(self, path: Path) -> Verdict | None:
        """Return the verdict, or None if there is none that can be read."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return read_verdict(json.dumps({"score": kept["score"], "reason": kept["reason"]}))
        except (OSError, ValueError, LookupError, TypeError, JudgeError):
            return None

    def check(self, paths: Iterable[Path]) -> None:
        """Raise IoError if a verdict could not be kept in one of `paths`: before an answer is paid for."""
        seen: set[Path] = set()
        for path in paths:
            try:
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
                if path.parent not in seen:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with TemporaryFile(dir=path.parent) as probe:
                        probe.write(b" " * 4096)
                seen.add(path.parent)
            except OSError as error:
                raise IoError(
                    f"--cache {self.folder}: no verdict could be kept there ({error.strerror}: "
                    f"{error.filename or path.parent}); nothing was asked. Choose another --cache"
                ) from error

    def put(self, path: Path, model: str, verdict: Verdict) -> None:
        """Keep a verdict. Raises IoError."""
        kept = {"model": model, "score": verdict.score, "reason": verdict.reason}
        write_bytes(path, json.dumps(kept).encode())


def judge_samples(
    samples: Sequence[JudgedText],
    rubric: str,
    model: str,
    cache: JudgeCache,
    endpoint: Endpoint | None,
    parallel: int = 4,
    extra: dict[str, Any] | None = None,
    on_done: Callable[[int, int], object] = lambda done, total: None,
) -> list[Judgement]:
    """Return a judgement for each sample, in order. Without an endpoint only the cache answers.

    `extra` are the request's further fields, part of what a verdict depends on; an endpoint brings its own.
    A sample that failed is not kept, so that the next call asks again. Once the endpoint proves unusable, no
    further sample is sent to it. Equal samples are asked once.
    """
    body = endpoint.body if endpoint else extra or {}
    paths = [cache.path_of(model, rubric, sample, body) for sample in samples]
    kept = {path: cache.get(path) for path in dict.fromkeys(paths)}
    missing = {path: sample for path, sample in zip(paths, samples, strict=True) if kept[path] is None}
    if endpoint is not None:
        cache.check(missing)
    faults: dict[Path, str] = {}
    fresh: dict[Path, Verdict] = {}
    unusable = Event()

    def one(item: tuple[Path, JudgedText]) -> None:
        path, sample = item
        if endpoint is None:
            faults[path] = "not in the cache"
        elif unusable.is_set():
            faults[path] = "not asked: the endpoint cannot be used"
        else:
            try:
                verdict = _ask_for_verdict(endpoint, messages_for(rubric, sample))
                cache.put(path, model, verdict)
                fresh[path] = verdict
            except EndpointError as error:
                unusable.set()
                faults[path] = str(error)
            except JudgeError as error:
                faults[path] = str(error)

    pool = ThreadPoolExecutor(max_workers=max(1, parallel))
    try:
        for done, _ in enumerate(pool.map(one, missing.items()), 1):
            on_done(done, len(missing))
    finally:
        unusable.set()  # after Ctrl-C or a full disk: no further question
        pool.shutdown(cancel_futures=True)
    return [
        Judgement(sample, kept[path] or fresh.get(path), kept[path] is not None, faults.get(path, ""))
        for path, sample in zip(paths, samples, strict=True)
    ]


def _ask_for_verdict(endpoint: Endpoint, messages: list[dict[str, str]]) -> Verdict:
    """Ask, and once more if the answer cannot be read."""
    try:
        return read_verdict(ask(endpoint, messages))
    except (EndpointError, BusyError):
        raise
    except JudgeError:
        return read_verdict(ask(endpoint, messages))


def mean_of(judgements: Iterable[Judgement]) -> tuple[float, float | None] | None:
    """Return the mean score and its standard error (None for one sample); None if nothing was judged."""
    scores = [judgement.verdict.score for judgement in judgements if judgement.verdict]
    if not scores:
        return None
    error = statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None
    return statistics.fmean(scores), error


def read_samples(path: Path, last: int | None = None, notes: list[str] | None = None) -> list[JudgedText]:
    """Return the samples of a run directory, of a `.samples.json`, or of JSON lines (`andrea sample --json`).

    `last`: only the last steps' (of a run) or lines. Lines that a kill cut are left out, as by the audit, and
    told in `notes`. Raises DataError for what holds no text, OSError.
    """
    if path.is_dir():
        files = sorted(path.glob("*.samples.json"))
        files = [file for file in files if ".until" not in file.name] or files
        if not files:
            raise DataError(f"{path}: no .samples.json is in it; give a run directory or a file of samples")
        path = files[-1]
        require_regular(path)
    left_out: list[str] = []
    rows = _rows_of(path, left_out)
    samples = [_sample_of(path, number, row) for number, row in enumerate(rows, 1)]
    if not samples:
        raise DataError(
            f"{path}: no sample is in it; a list of samples or one JSON object a line is needed"
            + "".join(f" ({note})" for note in left_out)
        )
    if notes is not None:
        notes += left_out
    if last is not None and samples and all(isinstance(row.get("step"), int) for row in rows):
        steps = sorted({row["step"] for row in rows})[-last:]
        return [sample for sample, row in zip(samples, rows, strict=True) if row["step"] >= steps[0]]
    return samples if last is None else samples[-last:]


def _rows_of(path: Path, notes: list[str]) -> list[Any]:
    content = read_at_most(path, _MOST_BYTES)  # once: it may be a pipe
    try:
        rows = json.loads(content)  # a list whatever its layout
    except (ValueError, RecursionError):
        rows = None
    if isinstance(rows, list):
        return rows
    return list(elements_of(content.split(b"\n"), path.name, notes))


def _sample_of(path: Path, number: int, row: object) -> JudgedText:
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise DataError(
            f'{path}: entry {number} holds no "text"; samples without a tokenizer cannot be judged'
        )
    prompt = row["prompt"] if isinstance(row.get("prompt"), str) else ""
    text: str = row["text"]
    if "step" in row and text.startswith(prompt):
        text = text[len(prompt) :]  # a run writes the prompt before the text
    label = f"step {row['step']}" if isinstance(row.get("step"), int) else f"line {number}"
    return JudgedText(text, prompt, label)
