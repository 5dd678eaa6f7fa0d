"""The blocks of a plain transformer, for the ViTs and the GPTs."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from scalewise.frameworks.torch.models.parts import Parts, Seams

INITIAL_STD = 0.02
"""Of the weights that published transformers begin with."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a transformer is."""

    width: int
    depth: int
    heads: int


class Attention(nn.Module):
    """Every position looks at the others; a causal one at those before it."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} does not divide over {heads} heads")
        # One product instead of three. Its rows go head by head, query, key and value of each
        # together: whoever takes a part of them takes whole heads.
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self._size, self._causal = width // heads, causal

    def forward(self, x: Tensor) -> Tensor:
        # However many heads are here: a device may hold some of them only.
        heads = self.qkv(x).unflatten(-1, (-1, 3, self._size)).transpose(1, 2)
        query, key, value = heads.unbind(3)
        seen = scaled_dot_product_attention(query, key, value, is_causal=self._causal)
        out: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Attention, then a dense network at every position, each added to its input."""

    def __init__(self, width: int, heads: int, *, causal: bool, epsilon: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, epsilon)
        self.attention = Attention(width, heads, causal=causal)
        self.norm2 = nn.LayerNorm(width, epsilon)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        out: Tensor = x + self.dense(self.norm2(x))
        return out


class Positions(nn.Module):
    """Adds to each position what is learned of it.

    What comes in bf16 stays so, and with it all that the blocks add up: half the bytes to move.
    In fp16 that sum might overflow.
    """

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width))
        nn.init.trunc_normal_(self.weight, std=INITIAL_STD)

    def forward(self, x: Tensor) -> Tensor:
        mine = self.weight[: x.shape[1]]
        return x + (mine.to(x.dtype) if x.dtype == torch.bfloat16 else mine)


def transformer(
    first: Mapping[str, nn.Module],
    last: Mapping[str, nn.Module],
    size: Size,
    *,
    length: int,
    causal: bool,
    epsilon: float = 1e-5,
) -> Parts:
    """Return a transformer's blocks between its first and its last parts.

    ``epsilon`` keeps its norms from dividing by nothing.
    """
    return Parts(
        {**first, "positions": Positions(length, size.width)},
        {
            f"block{n}": Block(size.width, size.heads, causal=causal, epsilon=epsilon)
            for n in range(size.depth)
        },
        last,
        Seams(
            columns=("attention.qkv", "dense.0"),
            rows=("attention.out", "dense.2"),
            joined=("attention", "dense"),
            norms=("norm", "norm2"),
            heads=size.heads,
            length=length,
        ),
    )
