"""The files that the page is made of: served one by one, or written into one self-contained page."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).with_name("page")
STYLE = "dashboard.css"
SCRIPTS = (
    "elements.js",
    "frame.js",
    "canvas_chart.js",
    "charts.js",
    "machine.js",
    "dashboard.js",
)  # in order
PLOTLY = "assets/plotly.js?v=VERSION"  # as the page names it
