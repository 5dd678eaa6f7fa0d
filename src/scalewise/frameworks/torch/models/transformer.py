"""The blocks of a plain transformer, for the ViT and the GPT."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from scalewise.frameworks.torch.models.parts import Parts, Seams


class Attention(nn.Module):
    """Every position looks at the others; a causal one at those before it."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} does not divide over {heads} heads")
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self._size, self._causal = width // heads, causal

    def forward(self, x: Tensor) -> Tensor:
        # However many heads are here: a device may hold some of them only.
        query, key, value = (
            each(x).unflatten(-1, (-1, self._size)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        seen = scaled_dot_product_attention(query, key, value, is_causal=self._causal)
        out: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention, then a dense network at every position, each added to its input."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal)
        self.norm2 = nn.LayerNorm(width)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        out: Tensor = x + self.dense(self.norm2(x))
        return out


class Positions(nn.Module):
    """Adds to each position what is learned of it."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[: x.shape[1]]


def transformer(
    first: Mapping[str, nn.Module],
    last: Mapping[str, nn.Module],
    *,
    length: int,
    width: int,
    depth: int,
    heads: int,
    causal: bool,
) -> Parts:
    """Return a transformer of ``depth`` blocks between its first and its last parts."""
    blocks = {f"block{n}": Block(width, heads, causal=causal) for n in range(depth)}
    return Parts(
        {**first, "positions": Positions(length, width)},
        blocks,
        {"norm": nn.LayerNorm(width), **last},
        Seams(
            columns=("attention.query", "attention.key", "attention.value", "dense.0"),
            rows=("attention.out", "dense.2"),
            joined=("attention", "dense"),
            norms=("norm", "norm2"),
            heads=heads,
            length=length,
        ),
    )
