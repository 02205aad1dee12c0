#!/usr/bin/env python3
"""Prepare all named sources that lie on this machine as one training set.

    scripts/prep-megachat.py [1024|4096|8192] [options of andrea data prep]

The number is the segments of the tokenizer: 1024 for ANDREA-NANO, 4096 for 12M, 8192 (the default) for 120M
and 480M. The same as `andrea data prep experiments/recipes/megachat*.json`; options go through (--tokenizer,
--out, --processes, --resume, --restart, --explain). First make the tokenizer: andrea tokenizer train.
"""

import sys
from pathlib import Path

from andrea.cli import main

RECIPES = Path(__file__).resolve().parent.parent / "experiments" / "recipes"
NAMES = {"1024": "megachat-1024.json", "4096": "megachat-4096.json", "8192": "megachat.json"}

if __name__ == "__main__":
    options = sys.argv[1:]
    name = NAMES[options.pop(0)] if options and options[0] in NAMES else NAMES["8192"]
    main(["data", "prep", str(RECIPES / name), *options])
