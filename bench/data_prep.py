"""How fast JSONL becomes `.btok`: python bench/data_prep.py [FILE.jsonl] [--megabytes 64]

Makes a file of conversations of the size asked for (of words drawn by a fixed seed; with FILE, its rows
repeated with a number in each turn, which is the worst case for near duplicates), prepares it with one
process, and prints MB of JSONL a second of processor time for the whole (and its peak memory) and each stage.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from arguments import ended, whole

from andrea.data.pack import DocumentEncoder
from andrea.data.prep import prepare
from andrea.data.readers import read
from andrea.data.shape import has_system_prompt_shape
from andrea.data.similar import signatures
from andrea.data.tally import Tally
from andrea.errors import DataError
from andrea.tokenizer import Tokenizer


def made_up_rows(size: int) -> Iterator[dict[str, object]]:
    """Yield conversations of four turns over 5,000 made-up words, `size` bytes in all, by a fixed seed."""
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlucm", k=rng.randint(2, 9))) for _ in range(5000)]
    written = 0
    while written < size:
        turns = [" ".join(rng.choices(words, k=rng.randint(5, 120))).capitalize() + "." for _ in range(4)]
        written += sum(map(len, turns)) + 150
        roles = ("user", "assistant", "user", "assistant")
        yield {"messages": [{"role": r, "content": t} for r, t in zip(roles, turns, strict=True)]}


def rows_of(path: Path) -> list[dict[str, object]]:
    """Return the rows of a JSONL file. Raises DataError that names the line if it is none."""
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as wrong:
        raise DataError(f"{path} is not UTF-8: {wrong}") from None
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line.strip() else None
        except ValueError as wrong:
            raise DataError(f"{path}, line {number}: no JSON: {wrong}") from None
        if row is not None and not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: must be an object, a conversation")
        rows += [row] if row else []
    if not rows:
        raise DataError(f"{path} holds no rows; name a JSONL file of conversations")
    return rows


def repeated_rows(path: Path, size: int) -> Iterator[dict[str, object]]:
    """Yield the rows of a JSONL file again and again, with a number in each turn's text."""
    rows = rows_of(path)
    if next(iter(read("chat", path, Tally())), None) is None:
        raise DataError(f"{path}: no row has turns or a text; name a JSONL file of conversations")
    written = number = 0
    while written < size:
        number += 1
        text = json.dumps(rows[number % len(rows)], ensure_ascii=False)
        text = text.replace('"content": "', f'"content": "No. {number}. ')
        text = text.replace('"value": "', f'"value": "No. {number}. ')
        written += len(text)
        yield json.loads(text)


def main() -> None:
    """Prepare, and print the speeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--megabytes", type=whole(), default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted = arguments.megabytes * 1_000_000
        rows = repeated_rows(arguments.file, wanted) if arguments.file else made_up_rows(wanted)
        source = folder / "chat.jsonl"
        words: Counter[str] = Counter()
        with open(source, "w", encoding="utf-8") as out:
            for number, row in enumerate(rows):
                line = json.dumps(row, ensure_ascii=False) + "\n"
                out.write(line)
                if number % 20 == 0:
                    words.update(line.split())
        size = source.stat().st_size
        segments = [f" {word}".encode() for word, _ in words.most_common(8000)]
        Tokenizer.from_segments(segments).save(str(folder / "harris_segments.json"))
        encoder = DocumentEncoder(Tokenizer.load(str(folder / "harris_segments.json")), threads=1)

        def told(what: str, begin: float) -> None:
            print(f"{what:<42} {size / (time.process_time() - begin) / 1e6:7.1f} MB a CPU second")

        for near in (None, 0.8):
            recipe = {
                "name": "bench",
                "tokenizer": "harris_segments.json",
                "out": f"out-{near}",
                "sources": [
                    {"name": "chat", "files": ["chat.jsonl"], "filters": {"near_duplicates": near}},
                ],
            }
            (folder / "recipe.json").write_text(json.dumps(recipe))
            begin = time.process_time()
            prepare(folder / "recipe.json", 1, say=lambda line: None)
            told(f"whole preparation, near duplicates {'off' if near is None else 'on'}", begin)
        print(f"peak memory so far {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
        begin = time.process_time()
        documents = list(read("chat", source, Tally()))
        told("read and render", begin)
        begin_filter = time.process_time()
        kept = [text.encode() for text in documents if not has_system_prompt_shape(text)]
        told("filter by shape (alone)", begin_filter)
        begin_encode = time.process_time()
        batches = list(encoder.stream(iter(kept)))
        told("encode and cut, one thread (alone)", begin_encode)
        begin_sign = time.process_time()
        for batch in batches:
            signatures(batch.texts)
        told("signatures for near duplicates (alone)", begin_sign)


if __name__ == "__main__":
    ended(main)
