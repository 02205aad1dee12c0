"""Recipes: one JSON file says which files become which packed sources. All mistakes are told at once."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import xxhash

from andrea.data.pack import DEFAULT_CONTEXT, SMALLEST_CONTEXT
from andrea.data.readers import READERS, SUFFIXES, Options, bare_name
from andrea.data.sources import SOURCES, data_root, state_of
from andrea.errors import ConfigError, IoError


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True)


class Filters(_Strict):
    """What is left out of a source."""

    min_bytes: int = pydantic.Field(1, ge=1)
    max_bytes: int | None = pydantic.Field(None, ge=1)
    system_prompt_shape: bool = True
    exact_duplicates: bool = True
    near_duplicates: float | None = pydantic.Field(None, gt=0.0, le=1.0)
    near_duplicates_cap: float = pydantic.Field(0.5, ge=0.0, le=1.0)


class SourceRecipe(_Strict):
    """One source: a name, its files (patterns, relative to the recipe), and how they are read."""

    name: str = pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    files: list[str] = pydantic.Field(default_factory=list)
    reader: str | None = None
    origin: str | None = None
    licence: str | None = None
    options: dict[str, Any] = pydantic.Field(default_factory=dict)
    filters: Filters = Filters()  # type: ignore[call-arg]


class Recipe(_Strict):
    """A whole recipe; `out` and `tokenizer` are relative to the recipe's file."""

    name: str
    tokenizer: str
    out: str
    context: int = pydantic.Field(DEFAULT_CONTEXT, ge=SMALLEST_CONTEXT)
    holdout: float = pydantic.Field(0.01, ge=0.0, lt=1.0)
    optional: bool = False  # sources without files on this machine are left out, and said
    vocab_size: int | None = pydantic.Field(None, ge=258)  # of the tokenizer: what the experiments say
    sources: list[SourceRecipe] = pydantic.Field(min_length=1)


class Plan(msgspec.Struct, frozen=True):
    """A source as it will be prepared: defaults filled in, files found."""

    name: str
    reader: str
    origin: str
    licence: str
    options: Options
    filters: Filters
    files: tuple[Path, ...]


def _message(path: Path, errors: list[str]) -> ConfigError:
    return ConfigError(
        f"{path}: the recipe has {len(errors)} mistake(s):\n" + "\n".join(f"  {e}" for e in errors)
    )


def _told(error: dict[str, Any]) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    if error["type"] != "extra_forbidden":
        return f"${where}: {error['msg']} (it is {error['input']!r})"
    last = str(error["loc"][-1])
    models = (Recipe, SourceRecipe, Filters)
    near = difflib.get_close_matches(last, [key for m in models for key in m.model_fields], 1)
    return f"${where}: unknown key" + (f", did you mean {near[0]!r}?" if near else "")


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe; ConfigError lists every mistake with its JSON path."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise IoError(f"{path}: cannot read the recipe: {error.strerror}") from error
    try:
        data = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from error
    try:
        recipe = Recipe.model_validate(data)
    except pydantic.ValidationError as error:
        raise _message(path, [_told(dict(e)) for e in error.errors()]) from error
    errors = []
    seen: set[str] = set()
    for index, source in enumerate(recipe.sources):
        where = f"$.sources[{index}]"
        if source.name in seen:
            errors.append(f"{where}.name: {source.name!r} stands twice")
        if source.name.endswith(".eval"):
            errors.append(f"{where}.name: {source.name!r} would be taken for held-out data")
        seen.add(source.name)
        known = SOURCES.get(source.name)
        reader = source.reader or (known.reader if known else None)
        if reader is None:
            errors.append(f"{where}.reader: needed, as {source.name!r} is no named source (andrea data list)")
        elif reader not in READERS:
            errors.append(f"{where}.reader: no reader {reader!r}; there are {', '.join(sorted(READERS))}")
        if known is None and not source.files:
            errors.append(f"{where}.files: needed, as {source.name!r} is no named source")
        try:
            _options(source)
        except msgspec.ValidationError as problem:
            errors.append(f"{where}.options: {problem}")
        else:
            if _options(source).system not in ("drop", "keep"):
                errors.append(f'{where}.options.system: "drop" or "keep"')
    if errors:
        raise _message(path, errors)
    return recipe


def _options(source: SourceRecipe) -> Options:
    known = SOURCES.get(source.name)
    return msgspec.convert({**(known.options if known else {}), **source.options}, Options)


def find_files(patterns: list[str], base: Path, reader: str) -> list[Path]:
    """Return the files of a source, sorted: literal names, patterns (`**` too), folders searched by suffix.

    A Git repository is one "file" for the reader "commits". Raises IoError for a pattern without a file.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        whole = str(base / pattern)
        some = False
        for path in [Path(whole)] if Path(whole).exists() else _matches(Path(whole)):
            if path.is_dir() and not (reader == "commits" and (path / ".git").exists()):
                inside = sorted(p for p in path.rglob("*") if p.is_file() and _wanted(p, reader))
                if reader == "commits":
                    inside += sorted(p for p in path.iterdir() if (p / ".git").exists())
                found.update(dict.fromkeys(inside))
                some = some or bool(inside)
            elif path.exists():
                found[path] = None
                some = True
        if not some:
            raise IoError(f"{whole}: no file there for the reader {reader!r}; check the recipe's files")
    return sorted(found)


def _matches(pattern: Path) -> list[Path]:
    """Return what matches a pattern, hidden folders too, sorted."""
    parts = pattern.parts
    fixed = next((i for i, part in enumerate(parts) if any(sign in part for sign in "*?[")), len(parts))
    if fixed == len(parts):
        return []
    return sorted(Path(*parts[:fixed]).glob(str(Path(*parts[fixed:]))))


def _wanted(path: Path, reader: str) -> bool:
    hidden = {".git", ".cache"} & set(path.parts)
    return bare_name(path).endswith(SUFFIXES[reader]) and not hidden and path.name != "SOURCE.json"


def plan(recipe: Recipe, base: Path, say: Callable[[str], None] = print) -> list[Plan]:
    """Fill in what the named sources say and find the files; `base` is the recipe's folder.

    In an `optional` recipe, sources that are not on this machine are said and left out. Raises IoError.
    """
    plans = []
    for source in recipe.sources:
        known = SOURCES.get(source.name)
        reader = source.reader or (known.reader if known else "text")
        filters = source.filters
        if known is not None and "near_duplicates" not in filters.model_fields_set:
            filters = filters.model_copy(update={"near_duplicates": known.near_duplicates})
        patterns = source.files or [str(data_root() / source.name)]
        try:
            files = find_files(patterns, base, reader)
        except IoError as missing:
            if not recipe.optional:
                raise
            say(f"{source.name}: left out, {state_of(known) if known and not source.files else missing}")
            continue
        plans.append(
            Plan(
                source.name,
                reader,
                source.origin or (known.origin if known else "not said"),
                source.licence or (known.licence if known else "not said"),
                _options(source),
                filters,
                tuple(files),
            )
        )
    if not plans:
        raise IoError(f"none of the recipe's sources is on this machine; put files into {data_root()}/NAME")
    return plans


def fingerprint(*parts: object) -> str:
    """Return a hash of plain data (XXH3-128 of its JSON), to know finished work again."""
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(parts, order="sorted"))
