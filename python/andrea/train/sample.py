"""Samples of a trained model: from a run directory, or from one checkpoint of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from andrea.errors import CheckpointError, ConfigError, IoError

if TYPE_CHECKING:
    from andrea._core import Engine, Experiment
    from andrea.tokenizer import Tokenizer


@dataclass(frozen=True)
class Choice:
    """How tokens are chosen, and how many."""

    tokens: int = 200
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 1.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class TrainedModel:
    """A model with weights from a checkpoint, and its tokenizer."""

    engine: Engine
    tokenizer: Tokenizer
    checkpoint: Path


def load_model(
    path: Path, config: Path | None = None, device: str = "auto", threads: int | None = None
) -> TrainedModel:
    """Load the newest readable checkpoint of a run directory, or the .bin that `path` names.

    The experiment comes from the state beside it, or from `config`. Raises CheckpointError, ConfigError,
    DataError or IoError.
    """
    if not path.exists():
        raise IoError(f"{path}: there is no such run directory or checkpoint")
    if path.is_dir():
        return _newest_of_run(path, config, device, threads)
    settings = _settings(path, config)
    return _load(path, settings, config or path, device, threads)


def write_sample(
    model: TrainedModel, prompt: str, choice: Choice, seed: int, write: Callable[[str], object]
) -> list[int]:
    """Generate after `prompt` and hand text to `write` as soon as its characters are whole; returns ids."""
    decoder = model.tokenizer.stream_decoder()

    def on_token(token: int) -> None:
        piece = decoder.push([token])
        if piece:
            write(fit_for_terminal(piece))

    ids = model.engine.generate(
        model.tokenizer.encode(prompt),
        choice.tokens,
        temperature=choice.temperature,
        top_k=choice.top_k,
        top_p=choice.top_p,
        repetition_penalty=choice.repetition_penalty,
        seed=seed,
        on_token=on_token,
    )
    rest = str(decoder.finish())
    if rest:
        write(fit_for_terminal(rest))
    return ids


# A model writes whatever bytes it likes: control characters would act on a terminal, lone surrogates cannot
# be written at all.
_UNFIT = dict.fromkeys({*range(32), *range(0x7F, 0xA0), *range(0xD800, 0xE000)} - {9, 10}, "\ufffd")


def fit_for_terminal(text: str) -> str:
    """Return text with U+FFFD for every control character but line ends and tabs."""
    return text.translate(_UNFIT)


def _newest_of_run(run: Path, config: Path | None, device: str, threads: int | None) -> TrainedModel:
    """Try the checkpoints from the newest on; one that cannot be read is passed over."""
    faults = []
    for state in sorted(run.glob("step_*.state.json"), key=_step_of, reverse=True):
        path = state.with_name(state.name.removesuffix(".state.json") + ".bin")
        try:
            return _load(path, _settings(path, config), config or state, device, threads)
        except (CheckpointError, IoError) as fault:
            faults.append(str(fault))
    if faults:
        raise CheckpointError(f"{run}: no checkpoint can be read:\n  " + "\n  ".join(faults))
    raise CheckpointError(
        f"{run}: no checkpoint is in it; a run directory has step_*.bin and step_*.state.json"
    )


def _step_of(state: Path) -> int:
    digits = state.name.removeprefix("step_").removesuffix(".state.json")
    return int(digits) if digits.isdigit() else -1


def _settings(checkpoint: Path, config: Path | None) -> dict[str, Any]:
    """Return the effective experiment that `checkpoint` was trained with."""
    if config is not None:
        from andrea._core import load_experiment

        settings: dict[str, Any] = json.loads(load_experiment(str(config)).effective_json())
        return settings
    own = checkpoint.with_name(checkpoint.name.removesuffix(".bin") + ".state.json")
    states = sorted(checkpoint.parent.glob("step_*.state.json"), key=_step_of, reverse=True)
    for state in [own, *states]:
        try:
            text = json.loads(state.read_text(encoding="utf-8"))["config"]
            settings = json.loads(text) if isinstance(text, str) else text
            if isinstance(settings, dict) and "model" in settings:
                return settings
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the next one may tell
    raise ConfigError(f"{checkpoint}: no state file beside it says its model; give --config FILE")


def _load(
    checkpoint: Path, settings: dict[str, Any], origin: Path, device: str, threads: int | None
) -> TrainedModel:
    from andrea._core import Engine, backends_present
    from andrea.tokenizer import Tokenizer

    experiment = _for_sampling(settings, origin)
    settings = json.loads(experiment.effective_json())  # checked, every key there
    tokenizer_path = settings["data"].get("tokenizer")
    if not tokenizer_path:
        raise ConfigError(f"{origin}: the experiment names no tokenizer, so there is no text to show")
    tokenizer = Tokenizer.load(tokenizer_path)
    vocab_size = settings["model"]["vocab_size"]
    if tokenizer.vocab_size != vocab_size:
        raise ConfigError(
            f"{tokenizer_path} has {tokenizer.vocab_size} ids, the model {vocab_size}: "
            "this is not the tokenizer it was trained with"
        )
    on_cpu = device == "cpu" or "cuda" not in backends_present()
    engine = Engine(experiment, device, threads, precision="fp32" if on_cpu else None)
    engine.load(str(checkpoint))
    return TrainedModel(engine, tokenizer, checkpoint)


def _for_sampling(settings: dict[str, Any], origin: Path) -> Experiment:
    """Return the experiment with the smallest batch: a sample needs no more."""
    from andrea._core import parse_experiment

    train = settings.get("train")
    smallest = {"batch_size": 1, "micro_batches": 1}
    small = settings | {"train": train | smallest if isinstance(train, dict) else train}
    return parse_experiment(json.dumps(small), str(origin.parent), str(origin))
