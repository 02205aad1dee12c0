"""The vocabulary in GGUF: llama.cpp's `rwkv` tokenizer, which is greedy longest match over bytes as well.

The format is little-endian: "GGUF", u32 version, u64 number of tensors, u64 number of keys, then the keys.
BOS is spelt with the bytes FF FF, which are no UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from andrea._core import Tokenizer
from andrea.errors import DataError

GGUF_VERSION = 3
_U32, _I32, _BOOL, _STRING, _ARRAY = 4, 5, 7, 8, 9
_NORMAL, _CONTROL = 1, 3  # llama.cpp's token types

Value = bool | int | str | list[bytes] | list[int]


def spelling(token: bytes) -> bytes:
    """A token as llama.cpp's rwkv reader unescapes it: printable ASCII as it is, all else as \\xNN."""
    return b"".join(
        bytes([byte]) if 0x20 <= byte < 0x7F and byte != 0x5C else b"\\x%02x" % byte for byte in token
    )


def vocabulary_keys(tokenizer: Tokenizer) -> dict[str, Value]:
    """The tokenizer.ggml.* keys of this vocabulary, for any GGUF writer.

    DataError if a segment holds a NUL: llama.cpp would see one at the end of every text. Training makes none.
    """
    for i, segment in enumerate(tokenizer.segments):
        if "\0" in segment:
            raise DataError(
                f"segment {i} {segment!r} holds a NUL, which llama.cpp cannot tell from a text's end"
            )
    tokens = [spelling(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size)]
    tokens[tokenizer.bos] = spelling(b"\xff\xff")
    types = [_NORMAL] * tokenizer.vocab_size
    types[tokenizer.bos] = _CONTROL
    return {
        "tokenizer.ggml.model": "rwkv",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": tokenizer.bos,
        "tokenizer.ggml.eos_token_id": tokenizer.bos,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
    }


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _encoded(value: Value) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value.encode())
    if value and isinstance(value[0], bytes):
        body = b"".join(_string(item) for item in value if isinstance(item, bytes))
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + body
    return struct.pack("<IIQ", _ARRAY, _I32, len(value)) + struct.pack(f"<{len(value)}i", *value)


def gguf_bytes(keys: Mapping[str, Value]) -> bytes:
    """A GGUF file of these keys and no tensors."""
    parts = [b"GGUF", struct.pack("<IQQ", GGUF_VERSION, 0, len(keys))]
    for name, value in keys.items():
        parts += [_string(name.encode()), _encoded(value)]
    return b"".join(parts)


def write_gguf_vocabulary(tokenizer: Tokenizer, path: Path) -> None:
    """Write a GGUF file with the vocabulary alone."""
    from andrea.data.files import write_bytes

    keys: dict[str, Value] = {"general.architecture": "gpt2", "general.name": "andrea vocabulary"}
    write_bytes(path, gguf_bytes(keys | vocabulary_keys(tokenizer)))
