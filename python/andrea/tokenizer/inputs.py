"""Where training text comes from: files as they are packed, and the sources of an experiment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from andrea.errors import ConfigError, DataError
from andrea.tokenizer.training import Source, Text


def documents(paths: Sequence[Path]) -> Iterator[Text]:
    """Documents of files just as `andrea data pack` reads them (text, .jsonl, .py, .gz, .zst, ...)."""
    from andrea.data.readers import documents_of
    from andrea.data.tally import Tally

    for path in paths:
        yield from documents_of(path, Tally())


def packed_documents(path: Path, tokenizer_path: Path) -> Iterator[bytes]:
    """Text of a .btok, by the tokenizer it was packed with."""
    from andrea._core import Tokenizer
    from andrea.data.btok import Btok

    tokenizer = Tokenizer.load(str(tokenizer_path))
    packed = Btok(path)
    packed.check_tokenizer(tokenizer)
    for document in range(len(packed)):
        yield tokenizer.decode_bytes(packed[document])


def file_sources(paths: Sequence[Path], raw: bool) -> list[Source]:
    """One source a file."""
    return [Source(path.name, path if raw else documents([path])) for path in paths]


def _mean_die(phases: Sequence[Mapping[str, Any]]) -> float:
    faces = [int(str(phase["dice"]).rpartition("d")[2]) for phase in phases if "dice" in phase]
    # Without phases in the file: 7, 14 and 21 steps roll 1d3, 28 and 42 roll 1d4.
    return sum((face + 1) / 2 for face in faces) / len(faces) if faces else 2.2


def curriculum_weights(experiment: Mapping[str, Any]) -> list[float | None]:
    """The share that the curriculum gives each source before it has learned anything.

    fixed: the weights; uniform: alike; proportional: None, by length. ucb1_dice: each source is as often in
    focus as any other (mean die of the phases over the number of sources, then weight 1), else in the
    background; raised to its floor, lowered to its cap.
    """
    sources = experiment["data"]["sources"]
    curriculum = experiment.get("curriculum", {})
    policy = curriculum.get("policy", "ucb1_dice")
    if policy == "proportional":
        return [None] * len(sources)
    if policy == "uniform":
        return [1.0] * len(sources)
    if policy == "fixed":
        return [float(source.get("weight", 1.0)) for source in sources]
    background = float(curriculum.get("background_weight", 0.1))
    focus = min(1.0, _mean_die(curriculum.get("phases", [])) / len(sources))
    expected = focus + (1 - focus) * background
    return [
        min(max(expected, float(source.get("floor", 0.0))), float(source.get("cap", 1.0)))
        for source in sources
    ]


def read_experiment(path: Path) -> dict[str, Any]:
    """The experiment file as plain JSON, with only what is needed here checked."""
    try:
        experiment = json.loads(path.read_bytes())
        sources = experiment["data"]["sources"]
        named = all(
            isinstance(source["name"], str) and isinstance(source["train"], str) for source in sources
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: no experiment with data.sources ({error!r})") from error
    if not sources or not named:
        raise ConfigError(f"{path}: data.sources must list sources with name and train")
    return experiment  # type: ignore[no-any-return]


def experiment_sources(path: Path, texts: Mapping[str, Sequence[Path]]) -> list[Source]:
    """The sources of an experiment with their curriculum weights.

    The text of a source is, in this order: the files given for its name in `texts`; its `train` file if
    that is no .btok; the .btok decoded by the experiment's present tokenizer. Sources of weight 0 stay out.
    """
    experiment = read_experiment(path)
    known = {source["name"] for source in experiment["data"]["sources"]}
    for name in texts:
        if name not in known:
            raise ConfigError(
                f"--text {name}=...: no such source; the experiment has {', '.join(sorted(known))}"
            )
    found = []
    weights = curriculum_weights(experiment)
    for source, weight in zip(experiment["data"]["sources"], weights, strict=True):
        name, train = source["name"], path.parent / source["train"]
        if weight == 0.0:
            continue
        if name in texts:
            found.append(Source(name, documents(texts[name]), weight))
        elif train.suffix != ".btok":
            found.append(Source(name, documents([train]), weight))
        elif train.exists() and (old := path.parent / experiment["data"].get("tokenizer", "")).is_file():
            found.append(Source(name, packed_documents(train, old), weight))
        else:
            raise DataError(
                f"source {name}: {train} and the tokenizer it was packed with are needed to get its text "
                f"back; or give the text: --text {name}=FILE"
            )
    return found
