"""Where plotly.js lies: the `plotly` package carries it, so no network is needed."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from andrea.errors import ConfigError

_OPENS, _CLOSES = b"this, () => {", b"}));"


def plotly_js() -> Path:
    """Return the path of plotly.min.js; raises ConfigError if the package is not there."""
    found = importlib.util.find_spec("plotly")  # found, not imported: that would take a while
    for place in found.submodule_search_locations or () if found else ():
        path = Path(place) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path
    raise ConfigError("the dashboard needs plotly: pip install starlette uvicorn plotly nvidia-ml-py")


@functools.cache
def plotly_script() -> bytes:
    """Return plotly.js as it is served. Raises ConfigError as `plotly_js`."""
    return compiled_at_once(plotly_js().read_bytes())


def compiled_at_once(script: bytes) -> bytes:
    """Return a bundle with its one large function in parentheses; another kind of bundle as it is.

    A browser only skims a function that is not called on the spot, and parses it a second time when it is,
    holding up the page. In parentheses it is compiled at once, beside the page, while the script is loaded.
    """
    at = script.find(_OPENS, 0, 2000)
    whole = script.rstrip()
    if at < 0 or not whole.endswith(_CLOSES):
        return script
    body = whole[at + len(b"this, ") : -len(_CLOSES)]
    return whole[:at] + b"this, (" + body + b"})));\n"


def plotly_version() -> str:
    """Return the version of the plotly package, for the address of its file."""
    from importlib.metadata import version

    return version("plotly")
