"""Where plotly.js lies: the `plotly` package carries it, so no network is needed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from andrea.errors import ConfigError


def plotly_js() -> Path:
    """Return the path of plotly.min.js; raises ConfigError if the package is not there."""
    found = importlib.util.find_spec("plotly")  # found, not imported: that would take a while
    for place in found.submodule_search_locations or () if found else ():
        path = Path(place) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path
    raise ConfigError("the dashboard needs plotly: pip install starlette uvicorn plotly nvidia-ml-py")


def plotly_version() -> str:
    """Return the version of the plotly package, for the address of its file."""
    from importlib.metadata import version

    return version("plotly")
