#!/usr/bin/env python3
"""Fetch the Hermes-3 conversations and sort them into general, creative and roleplay.

The same as `andrea data pull hermes3`; options go through (--to FOLDER).
"""

import sys

from andrea.cli import main

if __name__ == "__main__":
    main(["data", "pull", "hermes3", *sys.argv[1:]])
