"""A small decoder: from the tokens so far to the next one."""

from torch import nn

from scalewise.frameworks.torch.models.parts import Parts
from scalewise.frameworks.torch.models.transformer import transformer


def gpt(length: int, vocabulary: int, *, width: int = 128, depth: int = 4, heads: int = 4) -> Parts:
    """A plain GPT; its last layer is not tied to its first."""
    if not isinstance(length, int):
        raise ValueError('it learns from tokens, for example data = "tokens:10000"')
    return transformer(
        {"tokens": nn.Embedding(vocabulary, width)},
        {"head": nn.Linear(width, vocabulary, bias=False)},
        length=length,
        width=width,
        depth=depth,
        heads=heads,
        causal=True,
    )
