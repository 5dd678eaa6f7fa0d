"""GPT: decoders that predict the next token."""

from dataclasses import replace
from functools import partial
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from scalewise.frameworks.torch.models.parts import Parts
from scalewise.frameworks.torch.models.transformer import INITIAL_STD, Size, transformer


class TiedHead(nn.Module):
    """Output layer that uses the weights of the token embedding."""

    def __init__(self, tokens: nn.Embedding) -> None:
        super().__init__()
        # In a tuple the embedding is not a submodule, so its weights are saved only once.
        self._tokens = (tokens,)

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self._tokens[0].weight)


def gpt(
    length: int,
    vocabulary: int,
    *,
    width: int = 128,
    depth: int = 4,
    heads: int = 4,
    tied: bool = False,
) -> Parts:
    """Return a GPT. If ``tied``, the output layer uses the weights of the embedding, and weights
    are initialized as in GPT-2 (Radford et al., 2019).
    """
    if not isinstance(length, int):
        raise ValueError('it learns from tokens, for example data = "tokens:10000"')
    tokens = nn.Embedding(vocabulary, width)
    head = TiedHead(tokens) if tied else nn.Linear(width, vocabulary, bias=False)
    last = {"norm": nn.LayerNorm(width), "head": head}
    size = Size(width, depth, heads)
    model = transformer({"tokens": tokens}, last, size, length=length, causal=True)
    if not tied:
        return model
    model.seams = replace(model.seams, tied=True)
    return _initialize(model)


@torch.no_grad()
def _initialize(model: Parts) -> Parts:
    """Initialize as in GPT-2: the deeper, the smaller the weights that add to the residual."""
    residual_scale = sqrt(2 * len(model.blocks))
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            name_in_block = name.partition(".")[2]
            adds_to_residual = name_in_block in model.seams.rows
            std = INITIAL_STD / residual_scale if adds_to_residual else INITIAL_STD
            nn.init.trunc_normal_(layer.weight, std=std)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.Embedding):
            nn.init.normal_(layer.weight, std=INITIAL_STD)
    return model


def _published(width: int, depth: int, heads: int) -> partial[Parts]:
    return partial(gpt, width=width, depth=depth, heads=heads, tied=True)


gpt_nano, gpt_micro, gpt_mini = _published(48, 3, 3), _published(128, 4, 4), _published(192, 6, 6)
"""The sizes of minGPT."""
gpt_124m, gpt_350m = _published(768, 12, 12), _published(1024, 24, 16)
gpt_760m, gpt_1_3b = _published(1536, 24, 16), _published(2048, 24, 16)
"""The four smallest sizes of GPT-3 (Brown et al., arXiv:2005.14165); the first is also GPT-2's."""
