"""tokenizer.json for Hugging Face tokenizers, with the very ids of the native encoder.

The model is WordPiece with an empty prefix over byte-level characters. WordPiece is greedy longest match, but
only inside one pre-token; so the pre-tokens come from a regular expression that is the vocabulary's own trie:
each match is one segment, the longest at its place, and anything else falls into single bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from andrea._core import Tokenizer

# Holds a space, which no byte-level character is: text can never spell it.
BOS_SURFACE = "< BOS >"


class _Node:
    """A node of the trie of characters."""

    __slots__ = ("children", "ends")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.ends = False


def _literal(char: str) -> str:
    """A character for a regular expression, inside or outside a class, in any dialect."""
    return char if char.isalnum() or ord(char) > 0x7F else f"\\x{ord(char):02x}"


def _pattern(node: _Node) -> str:
    leaves = [char for char, child in node.children.items() if not child.children]
    branches = [_literal(char) + _pattern(child) for char, child in node.children.items() if child.children]
    if len(leaves) == 1:
        branches.append(_literal(leaves[0]))
    elif leaves:
        branches.append("[" + "".join(map(_literal, sorted(leaves))) + "]")
    # A greedy `?` tries the longer match first, and a path through a trie is unique.
    return "(?:" + "|".join(branches) + ")" + ("?" if node.ends else "")


def split_regex(tokenizer: Tokenizer) -> str:
    """The regular expression whose matches are the segments, longest first, or single characters."""
    root = _Node()
    for segment in tokenizer.segments:
        node = root
        for char in segment:
            node = node.children.setdefault(char, _Node())
        node.ends = True
    return (_pattern(root) + "|" if root.children else "") + r"[\s\S]"


def byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in byte-level tokenizers."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of tokenizer.json."""
    alphabet = byte_alphabet()
    vocabulary = {alphabet[byte]: byte for byte in range(256)}
    vocabulary[BOS_SURFACE] = tokenizer.bos
    for i, segment in enumerate(tokenizer.segments):
        vocabulary["".join(alphabet[byte] for byte in segment.encode())] = 257 + i
    byte_level = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": split_regex(tokenizer)},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", **byte_level},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", **byte_level},
        "model": {
            "type": "WordPiece",
            "unk_token": BOS_SURFACE,
            "continuing_subword_prefix": "",
            "max_input_chars_per_word": 100_000,
            "vocab": vocabulary,
        },
    }


def write_tokenizer_json(tokenizer: Tokenizer, directory: Path, context: int | None = None) -> list[Path]:
    """Write tokenizer.json and tokenizer_config.json into `directory` and return their paths.

    BOS is in the vocabulary but is no added token, so that text which spells it stays text; whoever feeds a
    model puts the id 256 in front.
    """
    from andrea.data.files import write_bytes

    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "andrea_bos_id": tokenizer.bos,
        "andrea_tokenizer_hash": f"{tokenizer.hash:016x}",
    }
    if context is not None:
        config["model_max_length"] = context
    written = []
    for name, content in (
        ("tokenizer.json", tokenizer_json(tokenizer)),
        ("tokenizer_config.json", config),
    ):
        write_bytes(directory / name, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())
        written.append(directory / name)
    return written
