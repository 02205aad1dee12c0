"""Philox4x32-10, the counter-based generator behind every draw (Salmon et al., SC 2011).

The key is (seed, stream), both 32 bits; the counter is arithmetic of the step, so there is no generator
state that a resume could lose. Stream 4 belongs to the curriculum.
"""

from __future__ import annotations

CURRICULUM_STREAM = 4

_MASK = 0xFFFFFFFF
_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_ROUNDS = 10

Words = tuple[int, int, int, int]


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Return the four 32-bit words that Philox4x32-10 makes of `counter` under `key`."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> 32) ^ c1 ^ k0,
            product_1 & _MASK,
            (product_0 >> 32) ^ c3 ^ k1,
            product_0 & _MASK,
        )
        k0 = (k0 + _WEYL_0) & _MASK
        k1 = (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


def below(word: int, n: int) -> int:
    """Map a 32-bit word to 0..n-1 by multiply and shift: (word * n) >> 32."""
    return (word * n) >> 32


class StepDraws:
    """The draws of the curriculum at one step: words of counters (step, step >> 32, block, 0)."""

    def __init__(self, seed: int, step: int) -> None:
        """Start at the first word of `step`; `seed` counts modulo 2^32."""
        self._key = (seed & _MASK, CURRICULUM_STREAM)
        self._step = step
        self._block = 0
        self._words: list[int] = []

    def below(self, n: int) -> int:
        """Draw one of 0..n-1 (n up to 2^32; the bias is below n / 2^32)."""
        if not self._words:
            counter = (self._step & _MASK, (self._step >> 32) & _MASK, self._block, 0)
            self._words = list(philox4x32(counter, self._key))
            self._block += 1
        return below(self._words.pop(0), n)
