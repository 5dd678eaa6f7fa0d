"""The transformer that the ViTs and the GPTs are built from."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from scalewise.frameworks.torch.models.parts import Parts, Seams

INITIAL_STD = 0.02
"""The standard deviation of initial weights in published transformers."""


@dataclass(frozen=True, slots=True)
class Size:
    """Dimensions of a transformer: features of a token, number of blocks, attention heads."""

    width: int
    depth: int
    heads: int


class Attention(nn.Module):
    """Multi-head self-attention, optionally causal."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} does not divide over {heads} heads")
        # One matrix product instead of three. Its outputs are ordered by head (query, key and
        # value of head 0, then of head 1, …), so that a split over devices keeps heads intact.
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self._head_size, self._causal = width // heads, causal

    def forward(self, x: Tensor) -> Tensor:
        # -1 stands for the number of heads: in tensor parallelism a device has only some.
        heads = self.qkv(x).unflatten(-1, (-1, 3, self._head_size)).transpose(1, 2)
        query, key, value = heads.unbind(3)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=self._causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """Pre-norm transformer block: attention and a dense network, each with a residual."""

    def __init__(self, width: int, heads: int, *, causal: bool, epsilon: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, epsilon)
        self.attention = Attention(width, heads, causal=causal)
        self.norm2 = nn.LayerNorm(width, epsilon)
        widen, narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dense = nn.Sequential(widen, nn.GELU(), narrow)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        out: Tensor = x + self.dense(self.norm2(x))
        return out


class Positions(nn.Module):
    """Adds a learned embedding to each position.

    With bf16 inputs the sum is bf16, to save memory. With fp16, which may overflow, it is fp32.
    """

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, width))
        nn.init.trunc_normal_(self.weight, std=INITIAL_STD)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight[: x.shape[1]]
        return x + (weight.to(x.dtype) if x.dtype == torch.bfloat16 else weight)


def transformer(
    first: Mapping[str, nn.Module],
    last: Mapping[str, nn.Module],
    size: Size,
    *,
    length: int,
    causal: bool,
    epsilon: float = 1e-5,
) -> Parts:
    """Return a transformer: ``first`` parts, positions, blocks, ``last`` parts."""
    seams = Seams(
        columns=("attention.qkv", "dense.0"),
        rows=("attention.out", "dense.2"),
        joined=("attention", "dense"),
        norms=("norm", "norm2"),
        heads=size.heads,
        length=length,
    )
    positions = Positions(length, size.width)
    blocks = {
        f"block{n}": Block(size.width, size.heads, causal=causal, epsilon=epsilon)
        for n in range(size.depth)
    }
    return Parts({**first, "positions": positions}, blocks, last, seams)
