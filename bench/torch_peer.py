"""The PyTorch model that a step is measured beside: the family's shape, in the usual building blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def gpt2_like(d: int, layers: int, heads: int, context: int, vocabulary: int, batch: int) -> torch.nn.Module:
    """Return a model whose forward pass gives the mean loss of ids and targets [batch, context]."""
    from torch import nn
    from torch.nn import functional

    padded = (vocabulary + 63) // 64 * 64

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
            self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.qkv(self.norm1(x)).view(batch, context, 3, heads, d // heads).unbind(2)
            q, k, v = (part.transpose(1, 2) for part in parts)
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(batch, context, d))
            hidden: torch.Tensor = self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))
            return x + hidden

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(padded, d), nn.Embedding(context, d)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(d)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, 0, 0.02)

        def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            x = self.tokens(ids) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)
            loss: torch.Tensor = functional.cross_entropy(logits.view(-1, padded).float(), targets.view(-1))
            return loss

    return Model()
