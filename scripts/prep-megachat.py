#!/usr/bin/env python3
"""Prepare all named sources that lie on this machine as one training set.

The same as `andrea data prep experiments/recipes/megachat.json`; options go through
(--tokenizer, --out, --processes, --resume, --restart, --explain).
"""

import sys
from pathlib import Path

from andrea.cli import main

RECIPE = Path(__file__).resolve().parent.parent / "experiments" / "recipes" / "megachat.json"

if __name__ == "__main__":
    main(["data", "prep", str(RECIPE), *sys.argv[1:]])
