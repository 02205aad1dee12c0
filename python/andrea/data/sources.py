"""The named sources: where each comes from, under which licence, and how its files are read.

"bring your own" means that no public origin is known for certain: the layout that is expected is said
instead of an address. What `andrea data list` shows and what recipes may leave out comes from here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A named source. `hub` is a data set on the Hugging Face hub, `patterns` its files there."""

    name: str
    reader: str
    origin: str
    licence: str
    layout: str
    hub: str | None = None
    patterns: tuple[str, ...] = ()
    near_duplicates: float | None = 0.8
    options: dict[str, object] = field(default_factory=dict)


_HERMES = "NousResearch/Hermes-3-Dataset on the Hugging Face hub, split by rule (andrea.data.hermes)"
_HERMES_LICENCE = "Apache-2.0 as listed in public indexes; read the card before you publish a model"
_TURNS = 'JSONL or Parquet: {"messages": [{"role", "content"}]}, or {"conversations": [{"from", "value"}]}'
_OWN = "bring your own"

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "hermes3-general",
            "chat",
            _HERMES,
            _HERMES_LICENCE,
            "ShareGPT JSONL",
            "NousResearch/Hermes-3-Dataset",
            ("*.jsonl", "*.json", "*.parquet", "data/*.parquet"),
        ),
        Source(
            "hermes3-creative",
            "chat",
            _HERMES,
            _HERMES_LICENCE,
            "ShareGPT JSONL",
            "NousResearch/Hermes-3-Dataset",
            ("*.jsonl", "*.json", "*.parquet", "data/*.parquet"),
        ),
        Source(
            "hermes3-roleplay",
            "chat",
            _HERMES,
            _HERMES_LICENCE,
            "ShareGPT JSONL",
            "NousResearch/Hermes-3-Dataset",
            ("*.jsonl", "*.json", "*.parquet", "data/*.parquet"),
        ),
        Source("chat", "chat", _OWN, "that of your data", _TURNS),
        Source(
            "smoltalk",
            "chat",
            "HuggingFaceTB/smoltalk on the Hugging Face hub (data/all, training part)",
            "Apache-2.0 by its card; parts come from sets with terms of their own",
            "Parquet with messages",
            "HuggingFaceTB/smoltalk",
            ("data/all/train-*.parquet",),
        ),
        Source(
            "oasst",
            "tree",
            "OpenAssistant/oasst2 on the Hugging Face hub (trees ready for export)",
            "Apache-2.0",
            "JSONL, one message a row with message_id and parent_id",
            "OpenAssistant/oasst2",
            ("2023-11-05_oasst2_ready.messages.jsonl.gz",),
            None,
            {"lang": "en"},
        ),
        Source(
            "gutenberg",
            "book",
            "Project Gutenberg (gutenberg.org): fetch books by its own rules for bulk access",
            "public domain in the USA; the Project Gutenberg licence asks to keep or strip its name",
            "plain .txt with the *** START and *** END marks",
            near_duplicates=None,
        ),
        Source(
            "dictionary",
            "dictionary",
            "for example WordNet 3.0 (Princeton University; Debian package wordnet-base), one row a lemma",
            "WordNet 3.0 licence: keep its notice",
            'JSONL: {"word", "definition"}',
            near_duplicates=None,
        ),
        Source("repo-docs", "pages", f"{_OWN}: .md and .rst trees", "that of each repository", ".md, .rst"),
        Source(
            "repo-docstrings",
            "docstrings",
            f"{_OWN}: .py trees (parsed, never run)",
            "that of each repository",
            ".py",
        ),
        Source(
            "repo-commits",
            "commits",
            f"{_OWN}: Git repositories, or their history as JSONL",
            "that of each repository",
            'a repository folder, or JSONL: {"subject", "body"}',
        ),
        Source("irc", "irc", _OWN, "that of your logs", "logs: [12:34] <nick> text, ISO dates, or tabs"),
        Source("unweapon", "chat", _OWN, "that of your data", _TURNS),
        Source("synthetic-chat", "chat", _OWN, "that of your data and of the model that wrote it", _TURNS),
        Source("unfirehose-chat", "chat", _OWN, "that of your data", _TURNS),
    )
}


def data_root() -> Path:
    """Return the folder that pulled sources lie in: $ANDREA_DATA, else ~/.local/share/andrea/data."""
    found = os.environ.get("ANDREA_DATA")
    if found:
        return Path(found)
    share = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(share) / "andrea" / "data"


def state_of(source: Source, root: Path | None = None) -> str:
    """Return what is on this machine of a source: its files and bytes, or how to get it."""
    folder = (root or data_root()) / source.name
    files = (
        [p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")]
        if folder.is_dir()
        else []
    )
    if files:
        return f"{len(files):,} files, {sum(p.stat().st_size for p in files):,} bytes in {folder}"
    return f"not here: andrea data pull {source.name}" if source.hub else f"not here: put files into {folder}"
