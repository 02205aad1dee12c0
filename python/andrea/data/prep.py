"""`andrea data prep`: a recipe's sources read, filtered, packed and reported, in parallel and resumable.

Work goes to OUT/.work as units (see units.py); the final names appear only when a source is whole, the
manifest last. The files are the same at any number of processes and after any interruption.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from andrea.data.btok import load_tokenizer
from andrea.data.files import write_bytes
from andrea.data.manifest import Manifest, build_manifest, load_manifest, report_text, verify_manifest
from andrea.data.merge import Merged, MergeJob, run_merge
from andrea.data.recipe import Plan, Recipe, fingerprint, load_recipe, plan
from andrea.data.tally import Tally
from andrea.data.units import Unit, finished, run_unit, units_of
from andrea.errors import ConfigError, DataError, Error, IoError

T = TypeVar("T")
Say = Callable[[str], None]
KEY_FILE = ".prepared"  # what the finished files were made from, for --resume


def _exit_with_parent() -> None:
    """End a worker as soon as the process that started it is gone (kill -9 leaves no orphans)."""
    import multiprocessing

    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(70)

    threading.Thread(target=wait, daemon=True).start()


class _Here(Executor):
    """Runs jobs in this process: what one worker needs no pool for."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@contextmanager
def _pool(processes: int) -> Iterator[Executor]:
    if processes == 1:
        yield _Here()
        return
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_exit_with_parent)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise IoError(
            "a worker process died (out of memory, or killed); run the same command with --resume, "
            "perhaps with fewer --processes"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _guarded(job: Callable[[Any], T], argument: Any) -> T | tuple[str, str]:
    """Run a job in a worker; an error of ours comes back as (class, message), which pickles safely."""
    try:
        return job(argument)
    except Error as error:
        return type(error).__name__, str(error)


def _unit_job(unit: Unit) -> str | tuple[str, str]:
    return _guarded(run_unit, unit)


def _merge_job(job: MergeJob) -> Merged | tuple[str, str]:
    return _guarded(run_merge, job)


def _opened(result: T | tuple[str, str]) -> T:
    if isinstance(result, tuple):
        import andrea.errors

        raise getattr(andrea.errors, result[0])(result[1])
    return result


def prepare(
    recipe_path: Path,
    processes: int = 1,
    resume: bool = False,
    restart: bool = False,
    keep_work: bool = False,
    say: Say = print,
    out: Path | None = None,
    tokenizer: Path | None = None,
) -> Manifest:
    """Prepare all sources of a recipe; returns the manifest, which lies in OUT/manifest.json.

    `resume` goes on with unfinished work (and does nothing if all is done), `restart` throws it away.
    `out` and `tokenizer` replace those of the recipe. Raises ConfigError, DataError or IoError.
    """
    if processes < 1:
        raise ConfigError(f"--processes {processes}: at least one is needed")
    recipe = load_recipe(recipe_path)
    base = recipe_path.resolve().parent
    folder = out.resolve() if out is not None else (base / recipe.out).resolve()
    coder_path = tokenizer.resolve() if tokenizer is not None else (base / recipe.tokenizer).resolve()
    plans = plan(recipe, base, say)
    token_hash, vocab = _tokenizer_facts(coder_path)
    if recipe.vocab_size not in (None, vocab):
        raise ConfigError(
            f"{coder_path} has {vocab} ids, the recipe's vocab_size is {recipe.vocab_size}: train one "
            f"with -n {recipe.vocab_size - 257} (andrea tokenizer train), or name one with --tokenizer"
        )
    job_key = _job_key(recipe, plans, token_hash, coder_path)
    job = _Job(recipe, plans, folder, coder_path, token_hash, vocab, job_key)
    with _locked(folder):
        return _prepare_locked(job, processes, resume, restart, keep_work, say)


@dataclass(frozen=True)
class _Job:
    """What is to be prepared, and where."""

    recipe: Recipe
    plans: list[Plan]
    folder: Path
    tokenizer: Path
    token_hash: int
    vocab: int
    key: str

    @property
    def work(self) -> Path:
        return self.folder / ".work"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder; ConfigError if another preparation holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise IoError(f"{folder}: cannot write there: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"{folder}: another preparation is at work there; wait for it") from error
        yield
    finally:
        os.close(handle)


def _prepare_locked(
    job: _Job, processes: int, resume: bool, restart: bool, keep_work: bool, say: Say
) -> Manifest:
    folder, work = job.folder, job.work
    _check_folder(folder, work, resume, restart)
    if resume and (old := _finished_manifest(folder, job.key)) is not None:
        say(f"{folder}: already done; nothing to do (--restart does it again)")
        return old
    try:
        work.mkdir(parents=True, exist_ok=True)
        _forget(folder, work)
    except OSError as error:
        raise IoError(f"{folder}: cannot write there: {error.strerror}") from error
    begin = time.monotonic()
    with _pool(processes) as pool:
        merged = _run(job, pool, say)
    manifest = build_manifest(job.recipe, job.plans, merged, job.token_hash, job.vocab)
    write_bytes(folder / KEY_FILE, job.key.encode("ascii"))
    write_bytes(folder / "report.md", report_text(manifest).encode("utf-8"))
    write_bytes(
        folder / "manifest.json", msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    )
    if not keep_work:
        shutil.rmtree(work, ignore_errors=True)
    seconds = max(time.monotonic() - begin, 1e-9)
    read = sum(Tally.from_json(m.tally).read_bytes for m in merged)
    say(f"{read:,} bytes read in {seconds:.1f} s ({read / seconds / 1e6:.1f} MB/s, {processes} process(es))")
    say(f"{folder / 'manifest.json'} and report.md are written; andrea data verify checks them")
    return manifest


def _forget(folder: Path, work: Path) -> None:
    """Remove what an earlier preparation left: its manifest and its packed files, temporary files."""
    path = folder / "manifest.json"
    try:
        old = load_manifest(path)
    except Error:
        old = None
    path.unlink(missing_ok=True)
    for entry in old.sources if old is not None else []:
        for packed in (entry.train, entry.eval):
            if packed is not None:
                (folder / Path(packed.file).name).unlink(missing_ok=True)
    for stale in (*folder.glob(".*.tmp"), *work.glob(".*.tmp")):
        stale.unlink(missing_ok=True)


def _tokenizer_facts(path: Path) -> tuple[int, int]:
    if not path.is_file():
        raise IoError(
            f"{path}: no tokenizer there; train one (andrea tokenizer train FILES --out {path.name}) "
            "or name another with --tokenizer"
        )
    found = load_tokenizer(path)
    return int(found.hash), int(found.vocab_size)


def _job_key(recipe: Recipe, plans: Sequence[Plan], token_hash: int, tokenizer: Path) -> str:
    """Return what a finished preparation must match: recipe, inputs and tokenizer."""
    units = [u.key() for p in plans for u in units_of(p, recipe.context, tokenizer, token_hash, Path())]
    return fingerprint(recipe.model_dump(exclude={"out", "tokenizer", "vocab_size"}), units)


def _check_folder(folder: Path, work: Path, resume: bool, restart: bool) -> None:
    if resume and restart:
        raise ConfigError("--resume and --restart exclude each other")
    if restart:
        shutil.rmtree(work, ignore_errors=True)
    elif not resume and work.exists():
        raise ConfigError(
            f"{folder}: holds unfinished work; add --resume to go on or --restart to begin anew"
        )
    elif not resume and (folder / "manifest.json").exists():
        raise ConfigError(f"{folder}: holds a finished preparation; add --restart to replace it")


def _finished_manifest(folder: Path, job_key: str) -> Manifest | None:
    try:
        if (folder / KEY_FILE).read_text(encoding="ascii") != job_key:
            return None
        verify_manifest(folder / "manifest.json")
        return load_manifest(folder / "manifest.json")
    except (OSError, UnicodeDecodeError, Error):
        return None


def _run(job: _Job, pool: Executor, say: Say) -> list[Merged]:
    """Run all units, and each source's merge as soon as its units are done; results in recipe order."""
    context, plans = job.recipe.context, job.plans
    units = {p.name: units_of(p, context, job.tokenizer, job.token_hash, job.work) for p in plans}
    total = sum(map(len, units.values()))
    old = sum(finished(unit) is not None for group in units.values() for unit in group)
    if old:
        say(f"{old} of {total} units were done before")
    owner: dict[Future[Any], str] = {}
    waiting = {name: len(group) for name, group in units.items()}
    marks: dict[str, list[str]] = {name: [""] * len(group) for name, group in units.items()}
    place: dict[Future[Any], int] = {}
    results: dict[str, Merged] = {}
    by_name = {p.name: p for p in plans}

    def merge(name: str) -> Future[Any]:
        filters = by_name[name].filters
        merging = MergeJob(
            name,
            tuple(marks[name]),
            str(job.work),
            str(job.folder),
            str(job.tokenizer),
            job.recipe.holdout,
            filters.exact_duplicates,
            filters.near_duplicates,
            filters.near_duplicates_cap,
        )
        return pool.submit(_merge_job, merging)

    pending: set[Future[Any]] = set()
    progress = _Progress(total, say)

    def follow(future: Future[Any], name: str, index: int) -> None:
        owner[future], place[future] = name, index
        if future.done():
            take(future)
        else:
            pending.add(future)

    def take(future: Future[Any]) -> None:
        result = _opened(future.result())
        name = owner[future]
        if isinstance(result, Merged):
            results[name] = result
            say(_source_line(result))
            return
        progress.step()
        marks[name][place[future]] = result
        waiting[name] -= 1
        if waiting[name] == 0:
            follow(merge(name), name, 0)

    for name, group in units.items():
        for index, unit in enumerate(group):
            follow(pool.submit(_unit_job, unit), name, index)
    while pending:
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        pending -= done
        for future in sorted(done, key=place.__getitem__):
            take(future)
    missing = [p.name for p in plans if p.name not in results]
    if missing:
        raise DataError(f"sources without a unit of work: {', '.join(missing)}")
    return [results[p.name] for p in plans]


class _Progress:
    """Says how far the units are, at most every five seconds."""

    def __init__(self, total: int, say: Say) -> None:
        self.total, self.say = total, say
        self.count = 0
        self.begin = self.last = time.monotonic()

    def step(self) -> None:
        """Count a unit."""
        self.count += 1
        now = time.monotonic()
        if now - self.last >= 5 and self.count < self.total:
            self.last = now
            left = (now - self.begin) / self.count * (self.total - self.count)
            self.say(f"{self.count} of {self.total} units, about {left:.0f} s to go")


def _source_line(merged: Merged) -> str:
    tally = Tally.from_json(merged.tally)
    train = merged.train
    held = f", {merged.eval.n_docs:,} held out" if merged.eval else ""
    return (
        f"{merged.source}: {train.n_docs:,} documents{held}, {train.n_tokens:,} tokens, "
        f"{train.n_bytes / train.n_tokens:.3f} bytes a token, {tally.dropped.total():,} dropped"
    )
