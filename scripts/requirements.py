"""Print requirements of pyproject.toml, one a line: build (with what runs it), or the name of an extra."""

from __future__ import annotations

import sys
from pathlib import Path


def read_project() -> dict[str, object]:
    """Read pyproject.toml; Python 3.10 has no tomllib, but pip carries one."""
    try:
        import tomllib
    except ModuleNotFoundError:
        from pip._vendor import tomli as tomllib
    return tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))


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
