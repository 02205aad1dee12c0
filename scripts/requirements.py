"""Print requirements of pyproject.toml, one a line: build (with what runs it), or the name of an extra."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def read_project() -> dict[str, Any]:
    """Read pyproject.toml; Python 3.10 has no tomllib, but pip carries one."""
    try:
        toml = importlib.import_module("tomllib")
    except ModuleNotFoundError:
        toml = importlib.import_module("pip._vendor.tomli")
    path = Path(__file__).parent.parent / "pyproject.toml"
    project: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
    return project


def requirements(group: str) -> list[str]:
    """Return the requirements of a group; SystemExit names the groups there are."""
    whole = read_project()
    project = whole["project"]
    if group == "build":
        return [*whole["build-system"]["requires"], "cmake>=3.24", "ninja", *project["dependencies"]]
    extras = project["optional-dependencies"]
    if group not in extras:
        sys.exit(f"{group}: no such group; there are build, {', '.join(extras)}")
    return list(extras[group])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print("\n".join(requirements(name)))
