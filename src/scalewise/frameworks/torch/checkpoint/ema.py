"""The mean of the weights over the last steps: what validates, and what is saved."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from scalewise.frameworks.torch.checkpoint.state_bytes import local_tensor
from scalewise.frameworks.torch.checkpoint.weights import local_stages


class EMA:
    """Keeps an exponential moving average of the weights that this rank holds."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        named = [
            pair
            for stage in local_stages(model)
            for pair in stage.named_parameters(remove_duplicate=False)
        ]
        self._weights = list({id(each): each for _, each in named}.values())
        self._means = [each.detach().clone() for each in self._weights]
        means = {id(each): mean for each, mean in zip(self._weights, self._means)}
        self._named = {name: means[id(each)] for name, each in named}
        """By every name: weights that are tied have several, as in the model's own state."""

    @property
    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it."""
        return {f"average.{name}": mean for name, mean in self._named.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights of one more step in."""
        torch._foreach_lerp_(
            [local_tensor(each) for each in self._means],
            [local_tensor(each.detach()) for each in self._weights],
            1 - self._decay,
        )

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average in the place of the weights for a while."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for mean, weight in zip(self._means, self._weights):
            mine, theirs = local_tensor(mean), local_tensor(weight.detach())
            kept = theirs.clone()
            theirs.copy_(mine)
            mine.copy_(kept)
