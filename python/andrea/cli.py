"""The `andrea` command: mounts each room's commands, and turns errors into one line and an exit code.

Only the commands that were asked for are imported; of the others `--help` shows one line.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from andrea.train import commands

EXIT_USAGE, EXIT_DATA, EXIT_INTERNAL, EXIT_IO, EXIT_CONFIG = 64, 65, 70, 74, 78

# Groups of commands, by name: the module whose `app` they are, and the line that --help shows.
GROUPS = {
    "curriculum": ("andrea.curriculum.commands", "See why the data is mixed as it is; replay a log."),
    "data": ("andrea.data.commands", "Prepare, pack, inspect and verify training data."),
    "tokenizer": ("andrea.tokenizer.commands", "Learn segments from text; encode and decode."),
}

# Single commands of other rooms: module, function, and the line that --help shows.
COMMANDS = {
    "sample": ("andrea.generate.commands", "sample", "Let a trained model write."),
    "chat": ("andrea.generate.commands", "chat", "Talk with a model that was trained on turns."),
    "eval": ("andrea.evaluate.commands", "evaluate", "Loss, perplexity and bits per byte on packed text."),
    "judge": ("andrea.evaluate.commands", "judge", "Have samples scored by a model behind a chat endpoint."),
    "dashboard": ("andrea.dashboard.commands", "dashboard", "Watch runs in a browser."),
    "plot": ("andrea.dashboard.commands", "plot", "Draw the curves of runs into a PNG, SVG or PDF."),
    "watch": ("andrea.dashboard.commands", "watch", "Watch a run in the terminal."),
    "proxy": ("andrea.curriculum.commands", "proxy", "Serve the curriculum to `microgpt_train --proxy`."),
    "export": ("andrea.export.commands", "export", "Write a model for transformers, llama.cpp, safetensors."),
    "import": ("andrea.export.commands", "import_model", "Make a checkpoint of a GPT-2-shaped model."),
    "audit": ("andrea.audit.commands", "audit", "Read a run's samples: collapse, copies, coherence."),
    "polish": ("andrea.curriculum.commands", "polish", "Take a run up again under new caps and floors."),
}

UsageError: type[BaseException] = typer.BadParameter.__mro__[1]  # click's, or the one that newer Typers carry
ClickError: type[BaseException] = typer.BadParameter.__mro__[2]


def _version(wanted: bool) -> None:
    if wanted:
        from andrea._core import VERSION

        print(f"andrea {VERSION}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Grow small decoder-only language models on one GPU from open data."""


def make_app(wanted: str | None) -> typer.Typer:
    """Mount all commands; of the groups, only `wanted` is imported."""
    app = typer.Typer(
        name="andrea", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )
    app.callback()(_main)
    for command in (
        commands.init,
        commands.check,
        commands.plan,
        commands.bench,
        commands.train,
        commands.doctor,
    ):
        app.command()(command)
    for name, (module, function, line) in COMMANDS.items():
        if wanted == name:
            app.command(name)(getattr(import_module(module), function))
        else:
            app.command(name, help=line)(_not_mounted)
    for name, (module, line) in GROUPS.items():
        if wanted == name:
            app.add_typer(import_module(module).app, name=name, help=line)
        else:
            app.command(name, help=line)(_not_mounted)
    return app


def _not_mounted() -> None:
    """Stand in for a group that this call does not use."""


def _first_word(arguments: Sequence[str]) -> str | None:
    return next((word for word in arguments if not word.startswith("-")), None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # What the terminal or the log cannot show (ASCII, a stray byte) is no reason to stop.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = run(given)
    try:
        if sys.stdout is not None:  # it was closed before we began
            sys.stdout.flush()
    except BrokenPipeError:
        from andrea.closed_pipe import stop_writing

        stop_writing()
        code = code or EXIT_IO
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code. ANDREA_DEBUG=1 shows tracebacks."""
    if os.environ.get("ANDREA_DEBUG") == "1":
        return _call(arguments)
    try:
        return _call(arguments)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except OSError as error:
        return _complain(_of_system(error), EXIT_IO)
    except Exception as error:
        odd = [given for given in arguments if not _is_text(given)]
        if odd and isinstance(error, (TypeError, UnicodeError)):  # what the engine makes of such a path
            return _complain(f"{odd[0]!r} is not UTF-8; give that file another name", EXIT_USAGE)
        return _complain(*explain(error))


def _of_system(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}; check the path"


def _is_text(argument: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in argument)


def _call(arguments: Sequence[str]) -> int:
    app = make_app(_first_word(arguments))
    try:
        result = typer.main.get_command(app)(args=list(arguments), prog_name="andrea", standalone_mode=False)
    except UsageError as error:
        if not _message_of(error):  # nothing was asked for, and the help has been shown
            return EXIT_USAGE
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        return _complain(_message_of(error) + hint, EXIT_USAGE)
    except typer.Abort:
        return _complain("aborted", EXIT_USAGE)
    except SystemExit:
        # Typer's answer to a closed pipe: whoever read our output has gone, and there is nobody to tell.
        return EXIT_IO
    return result if isinstance(result, int) else 0


def _message_of(error: BaseException) -> str:
    message: Callable[[], str] | None = getattr(error, "format_message", None)
    return message() if message else str(error)


def explain(error: Exception) -> tuple[str, int]:
    """Return what to say of an error, and the exit code of its kind."""
    from andrea.errors import CheckpointError, ConfigError, DataError, Error, IoError, OutOfMemory

    if isinstance(error, (ConfigError, OutOfMemory)):
        return str(error), EXIT_CONFIG
    if isinstance(error, (DataError, CheckpointError)):
        return str(error), EXIT_DATA
    if isinstance(error, IoError):
        return str(error), EXIT_IO
    if isinstance(error, Error):
        return str(error), EXIT_INTERNAL
    if isinstance(error, ClickError):
        return _message_of(error), EXIT_USAGE
    return (
        f"internal error: {type(error).__name__}: {error} (ANDREA_DEBUG=1 shows where)",
        EXIT_INTERNAL,
    )


def _complain(message: str, code: int) -> int:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console.print(f"andrea: {message}", style="red")
    return code
