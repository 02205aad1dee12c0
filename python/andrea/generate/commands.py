"""The commands `andrea sample` and `andrea chat`.

Errors are raised; andrea.cli turns them into one line and an exit code.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from andrea.train.commands import LARGEST, Device, DeviceOption, ThreadsOption

if TYPE_CHECKING:
    from andrea.generate.chat import Chat
    from andrea.generate.model import TrainedModel
    from andrea.generate.sample import Wanted

MOST_AT_ONCE = 1024
AT_ONCE_CPU, AT_ONCE_CUDA = 8, 64  # above 8 the CPU takes another path, with other rounding

MOST_PROMPTS = 1 << 26  # bytes of --prompts
MOST_SAMPLES = 100_000  # of a prompt; all texts of a call are held in memory


def _finite(value: float) -> float:
    if math.isinf(value):
        raise typer.BadParameter("a finite number is needed")
    return value


def _above_zero(value: float) -> float:
    if not value > 0:
        raise typer.BadParameter("must lie above 0 and at most at 1 (1: off)")
    return value


Model = Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run directory or a .bin.")]
Temperature = Annotated[float, typer.Option(min=0.0, callback=_finite, help="0: the most likely token.")]
TopK = Annotated[int, typer.Option("--top-k", min=0, max=LARGEST, help="0: all tokens.")]
TopP = Annotated[
    float,
    typer.Option("--top-p", max=1.0, callback=_above_zero, help="Share of likely tokens, above 0; 1: off."),
]
Penalty = Annotated[
    float,
    typer.Option(
        "--repetition-penalty", min=1.0, callback=_finite, help="Against what is there already; 1: off."
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", help="Text that ends it, \\n and \\t understood; repeatable."),
]
Config = Annotated[
    Path | None, typer.Option("--config", help="The experiment, for a .bin outside its run directory.")
]


def sample(
    model: Model,
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", help="What the model goes on from; may be repeated.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", metavar="FILE", help="One prompt a line; - is standard input.")
    ] = None,
    number: Annotated[
        int, typer.Option("-n", "--n", min=1, max=MOST_SAMPLES, help="Samples of each prompt.")
    ] = 1,
    tokens: Annotated[int, typer.Option("--tokens", min=1, max=LARGEST, help="Tokens, at most.")] = 200,
    temperature: Temperature = 0.8,
    top_k: TopK = 40,
    top_p: TopP = 1.0,
    repetition_penalty: Penalty = 1.0,
    stop: Stop = None,
    one_document: Annotated[
        bool, typer.Option("--one-document", help="Stop where the model begins a new document.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Of a prompt's first sample; then +1 each.")
    ] = 42,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, max=MOST_AT_ONCE, help="Texts at once.", show_default="8, on CUDA 64"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a sample and line.")] = False,
    timing: Annotated[bool, typer.Option("--timing", help="Say tokens a second, on standard error.")] = False,
    config: Config = None,
    device: DeviceOption = Device.auto,
    threads: ThreadsOption = None,
) -> None:
    """Let a trained model write, word by word; several texts at once.

    The same prompt, seed and options give the same text. Exit codes: 64 usage, 65 bad checkpoint or
    tokenizer, 74 input/output, 78 bad experiment, 70 internal.
    """
    import json
    from dataclasses import asdict

    from andrea.generate.sample import Choice, InOrder, Wanted, write_samples

    texts = [*(prompt or []), *(_lines(prompts) if prompts else [])] or [""]
    wanted = [Wanted(text, (seed + k) % 2**32) for text in texts for k in range(number)]
    trained = _load(model, config, device, threads, batch, len(wanted))
    choice = Choice(
        tokens,
        temperature,
        top_k,
        top_p,
        repetition_penalty,
        _stops(stop),
        one_document,
    )
    _say_of_context(trained, texts, tokens)
    if as_json:
        samples, took = write_samples(trained, wanted, choice)
        for one in samples:
            print(json.dumps(asdict(one) | {"checkpoint": str(trained.checkpoint)}, ensure_ascii=False))
    else:
        samples, took = write_samples(
            trained,
            wanted,
            choice,
            InOrder(_headers(wanted, number), lambda text: print(text, end="", flush=True)),
        )
    if timing:
        where = trained.engine.device
        _say(f"{took}; {where['backend']}, {where['threads']} threads")


def chat(
    model: Model,
    message: Annotated[
        list[str] | None,
        typer.Option("-m", "--message", help="Say this and leave; may be repeated."),
    ] = None,
    system: Annotated[str, typer.Option("--system", help="A system prompt.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", min=1, max=LARGEST, help="Of a reply, at most.")] = 256,
    temperature: Temperature = 0.7,
    top_k: TopK = 40,
    top_p: TopP = 0.95,
    repetition_penalty: Penalty = 1.1,
    stop: Stop = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the first reply; then +1 each.")] = 42,
    config: Config = None,
    device: DeviceOption = Device.auto,
    threads: ThreadsOption = None,
) -> None:
    """Talk with a model that was trained on turns (`> prompt`, `< reply`).

    The conversation stays within the context: the oldest turns are dropped when it is full, and that is said.
    Ctrl-C ends a reply, and at the prompt it leaves, as Ctrl-D and /quit do; /reset forgets the conversation.
    Lines from a pipe are one message each.
    """
    from andrea.generate.chat import Chat
    from andrea.generate.sample import Choice

    trained = _load(model, config, device, threads, 1, 1)
    choice = Choice(tokens, temperature, top_k, top_p, repetition_penalty, _stops(stop))
    talk = Chat(trained, choice, seed, system)
    if message:
        for text in message:
            _answer(talk, text)
    else:
        _converse(talk)


def _converse(talk: Chat) -> None:
    from andrea.errors import DataError, IoError

    if sys.stdin is None:
        raise IoError("standard input is closed, so that there are no messages; give them by --message")
    terminal = sys.stdin.isatty()
    if terminal:
        import readline  # noqa: F401  (line editing and history for input())

        _say(f"{talk.model.checkpoint}: /reset forgets, /quit leaves, Ctrl-C ends a reply")
    while True:
        try:
            line = input("> ") if terminal else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        except UnicodeDecodeError as error:
            raise DataError("standard input: a message is not UTF-8") from error
        if not terminal:
            if not line:
                return
            line = line.removesuffix("\n").removesuffix("\r")
        if line == "/quit":
            return
        if line == "/reset":
            talk.reset()
            _say("the conversation is forgotten")
        elif line.startswith("/") and not line.startswith("//"):
            _say(f"{line.split()[0]} is no command: /reset, /quit; // begins a message with /")
        elif line.strip():
            try:
                _answer(talk, line.removeprefix("/") if line.startswith("//") else line)
            except DataError as error:
                if not terminal:
                    raise
                _say(str(error))


def _answer(talk: Chat, message: str) -> None:
    from andrea.generate.stream import fit_for_terminal

    shown = ["< "]  # not before the message has been taken

    def show(piece: str) -> None:
        print(*shown, fit_for_terminal(piece), sep="", end="", flush=True)
        shown.clear()

    reply = talk.ask(message, show)
    print(*shown, flush=True)
    if reply.dropped:
        context = talk.model.engine.context
        _say(f"the context of {context} tokens is full: {reply.dropped} oldest turns dropped")
    if reply.finish == "window":
        _say(f"the context is full: the reply was cut at {reply.tokens} tokens")
    elif reply.finish == "length":
        _say(f"the reply was cut at {reply.tokens} tokens (--tokens)")


def _load(
    model: Path, config: Path | None, device: Device, threads: int | None, batch: int | None, wanted: int
) -> TrainedModel:
    # Threads that spin while they wait take the cores from those they wait for. OpenMP reads this once, when
    # the engine is loaded below.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from andrea._core import backends_present
    from andrea.generate.model import Reader, idle_cores, load_model

    on_cpu = device == Device.cpu or "cuda" not in backends_present()
    at_once = min(wanted, batch or (AT_ONCE_CPU if on_cpu else AT_ONCE_CUDA))
    if threads is None and on_cpu:
        threads = idle_cores()
    trained = load_model(model, config, Reader(device.value, threads, sequences=at_once))
    for note in trained.notes:
        _say(note)
    return trained


def _lines(path: Path) -> list[str]:
    from andrea.data.files import at_most, read_at_most
    from andrea.errors import DataError, IoError

    if str(path) == "-" and sys.stdin is None:
        raise IoError("--prompts -: standard input is closed")
    if str(path) == "-":
        content = at_most(sys.stdin.buffer, MOST_PROMPTS, "--prompts -")
    else:
        content = read_at_most(path, MOST_PROMPTS)
    try:
        text = content.decode("utf-8-sig")
        return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; save the prompts as UTF-8") from error


def _headers(wanted: list[Wanted], number: int) -> list[str]:
    """Return what stands before each text: a line where there are several, and the prompt."""
    from andrea.generate.stream import fit_for_terminal

    if len(wanted) == 1:
        return [fit_for_terminal(wanted[0].prompt)]
    several = len(wanted) > number
    return [
        f"--- sample {index + 1} ({f'prompt {index // number + 1}, ' if several else ''}seed {one.seed})\n"
        + fit_for_terminal(one.prompt)
        for index, one in enumerate(wanted)
    ]


def _say_of_context(trained: TrainedModel, texts: list[str], tokens: int) -> None:
    context = trained.engine.context
    longest = max(1 + len(trained.tokenizer.encode(text)) for text in texts)
    if longest > context:
        _say(
            f"the longest prompt has {longest} tokens, the context {context}: "
            f"of such a prompt only the last {max(1, context // 2)} are read"
        )
    elif longest + tokens > context + 1:
        _say(
            f"prompt and text may outgrow the context of {context} tokens: "
            f"whenever it is full, the model goes on from the last {max(1, context // 2)}"
        )


def _stops(given: list[str] | None) -> tuple[str, ...]:
    if given and "" in given:
        raise typer.BadParameter("an empty text would end it before it begins", param_hint="--stop")
    return tuple(text.replace("\\n", "\n").replace("\\t", "\t") for text in given or [])


def _say(text: str) -> None:
    print(f"[{text}]", file=sys.stderr, flush=True)
