"""Exponential moving average (EMA) of the weights, used to validate and to save."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from scalewise.frameworks.torch.checkpoint.local_state import local_stages, local_tensor


class EMA:
    """Keeps an exponential moving average of the weights that this rank holds."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        stages = local_stages(model)
        pairs = [pair for part in stages for pair in part.named_parameters(remove_duplicate=False)]
        self._weights = list({id(weight): weight for _, weight in pairs}.values())
        self._averages = [weight.detach().clone() for weight in self._weights]
        average_of = {id(weight): avg for weight, avg in zip(self._weights, self._averages)}
        self._averages_by_name = {name: average_of[id(weight)] for name, weight in pairs}
        """As in the model's state dict, weights that layers share (tied ones) have two names."""

    @property
    def state(self) -> dict[str, Tensor]:
        """The averages by their names in a checkpoint."""
        return {f"average.{name}": average for name, average in self._averages_by_name.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Update the averages with the current weights."""
        torch._foreach_lerp_(
            [local_tensor(average) for average in self._averages],
            [local_tensor(weight.detach()) for weight in self._weights],
            1 - self._decay,
        )

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Use the average as the model's weights while entered."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for average, weight in zip(self._averages, self._weights):
            local_average, local_weight = local_tensor(average), local_tensor(weight.detach())
            weight_before = local_weight.clone()
            local_weight.copy_(local_average)
            local_average.copy_(weight_before)
