"""DDP models of a user's program: their last gradients, buckets and own timings."""

from collections.abc import Callable
from typing import Any

from scalewise.probe.torch.last_gradient import LastGradient
from scalewise.watch.torch import private_api


class DdpModels:
    """Finds out when each model's last gradient is computed, and reads DDP's own statistics."""

    def __init__(self, on_last_gradient: Callable[..., None]) -> None:
        self.next_sample = 2
        self._on_last_gradient = on_last_gradient
        self.facts: dict[int, dict[str, Any]] = {}
        """The gradient buckets of each model, as far as DDP reports them."""
        self._last_gradients: dict[int, LastGradient] = {}

    def add(self, model: Any) -> set[str]:
        """Watch a model; return the set that will hold its parameters without a gradient."""
        private_api.sample_ddp(model, private_api.SAMPLE_RATES[0])
        last = self._last_gradients[id(model)] = LastGradient(model, self._on_last_gradient)
        return last.unused

    def forget(self, model: int) -> None:
        """Forget a deleted model: another one may get its id."""
        self._last_gradients.pop(model, None)

    def remove(self) -> None:
        for last in self._last_gradients.values():
            last.remove()

    def check_sync(self, names: list[str]) -> None:
        """Count a missed last gradient, if the laps of the last step have no ``sync``."""
        if self._last_gradients and "sync" not in names:
            for last in self._last_gradients.values():
                last.miss()

    def sample(self, steps: int) -> float | None:
        """Return DDP's own overlap of communication and computing in seconds, if it timed it."""
        rate = private_api.SAMPLE_RATES[steps >= private_api.SAMPLE_RATES[1]]
        self.next_sample = steps + rate
        overlap = None
        for model, last in self._last_gradients.items():
            private_api.sample_ddp(last.model(), rate)
            self.facts[model] = private_api.ddp_facts(last.model())
            if (seconds := private_api.ddp_overlap(last.model())) is not None:
                overlap = seconds
        return overlap
