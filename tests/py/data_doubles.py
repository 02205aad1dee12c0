"""A small greedy tokenizer for tests of the data room: bytes, BOS and a few segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash

SEGMENTS = [b" the", b"the", b"\n\n", b"  ", b" and", b"ing", b" of", b"Alice", b"> ", b"< "]


class SmallTokenizer:
    """Greedy longest match over bytes, like the real one, with ten segments."""

    def __init__(self, segments: list[bytes] = SEGMENTS) -> None:
        self.segments = segments
        self.vocab_size = 257 + len(segments)
        digest = xxhash.xxh64()
        for segment in segments:
            digest.update(len(segment).to_bytes(4, "little") + segment)
        self.hash = digest.intdigest()
        self._by_length = sorted(enumerate(segments, start=257), key=lambda item: -len(item[1]))

    def encode(self, text: str | bytes) -> Any:
        data = text.encode() if isinstance(text, str) else text
        out, at = [], 0
        while at < len(data):
            for token, segment in self._by_length:
                if data.startswith(segment, at):
                    out.append(token)
                    at += len(segment)
                    break
            else:
                out.append(data[at])
                at += 1
        return np.array(out, dtype=np.int32)

    def encode_batch(self, texts: list[bytes]) -> tuple[Any, Any]:
        parts = [self.encode(text) for text in texts]
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return np.concatenate(parts) if parts else np.zeros(0, np.int32), offsets

    def decode_bytes(self, ids: Any) -> bytes:
        return b"".join(
            bytes([i]) if i < 256 else self.segments[i - 257] for i in np.asarray(ids).tolist() if i != 256
        )
