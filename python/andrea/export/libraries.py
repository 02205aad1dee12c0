"""The libraries of the formats, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from andrea.errors import ConfigError


def need(module: str) -> Any:
    """Return a module of the extra `export`; ConfigError names the line that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"this format needs the package {module.partition('.')[0]}: "
            f"pip install safetensors gguf ({error})"
        ) from error
