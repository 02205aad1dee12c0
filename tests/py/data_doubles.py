"""What the tests of the data room share: a tiny real tokenizer and short ways to write files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from andrea.data.btok import Btok
from andrea.tokenizer import Tokenizer

SEGMENTS = [b" the", b"the", b"\n\n", b"  ", b" and", b"ing", b" of", b"Alice", b" a", b" to"]


def small_tokenizer(segments: list[bytes] = SEGMENTS) -> Tokenizer:
    """Bytes, BOS and ten segments."""
    return Tokenizer.from_segments(segments)


def texts_in(path: Path, tokenizer: Any) -> list[str]:
    """Return all documents of a `.btok` as text."""
    packed = Btok(path)
    return [tokenizer.decode(packed[i]) for i in range(len(packed))]


def write_jsonl(path: Path, rows: Iterable[Any]) -> Path:
    """Write one JSON value a line."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
