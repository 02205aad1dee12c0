"""The named sizes of the model family. A name is a size class; the count is exact."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """One shape, and the settings a first run starts from."""

    name: str
    d_model: int
    n_head: int
    n_layer: int
    context: int
    segments: int  # N of the tokenizer; the vocabulary is 257 + N
    batch_size: int
    micro_batches: int
    steps: int
    warmup_steps: int
    peak: float

    def n_params(self, vocab_size: int | None = None) -> int:
        """Return the exact number of parameters with tied embeddings (vocabulary: 257 + N by default)."""
        vocab = 257 + self.segments if vocab_size is None else vocab_size
        d = self.d_model
        return (vocab + self.context) * d + self.n_layer * (12 * d * d + 4 * d) + 2 * d


SIZES = {
    size.name: size
    for size in (
        Size("NANO", 128, 4, 4, 256, 1024, 8, 1, 2_000, 50, 3e-3),
        Size("12M", 384, 12, 6, 1024, 4096, 8, 2, 20_000, 500, 1e-3),
        Size("120M", 768, 12, 12, 1024, 8192, 8, 8, 50_000, 2_000, 6e-4),
        Size("480M", 1536, 24, 16, 1024, 8192, 4, 32, 100_000, 2_000, 3e-4),
    )
}
