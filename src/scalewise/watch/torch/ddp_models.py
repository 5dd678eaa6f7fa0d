"""Watch the last gradients of DDP models, and read DDP's own statistics."""

from collections.abc import Callable
from typing import Any

from scalewise.probe.torch.last_gradient import LastGradient
from scalewise.watch.torch import private_api

EARLY_STEPS = 100
EARLY_INTERVAL, LATER_INTERVAL = 10, 100
"""Steps from one timing by DDP to the next: in the ``EARLY_STEPS``, and later."""


class DdpModels:
    """The DDP models of a user's program."""

    def __init__(self, on_last_gradient: Callable[..., None]) -> None:
        self.next_reading = 2
        """The step after which DDP's statistics are read next."""
        self._on_last_gradient = on_last_gradient
        self.facts: dict[int, dict[str, Any]] = {}
        """The sizes of the gradient buckets, by model id, as far as DDP reports them."""
        self._last_gradients: dict[int, LastGradient] = {}

    def add(self, model: Any) -> set[str]:
        """Watch a model; return the set that will hold its parameters without a gradient."""
        private_api.set_timing_interval(model, EARLY_INTERVAL)
        last_gradient = LastGradient(model, self._on_last_gradient)
        self._last_gradients[id(model)] = last_gradient
        return last_gradient.unused

    def forget(self, model_id: int) -> None:
        """Forget a deleted model: another one may get its id."""
        self._last_gradients.pop(model_id, None)

    def remove(self) -> None:
        for last_gradient in self._last_gradients.values():
            last_gradient.remove_hooks()

    def check_sync(self, lap_names: list[str]) -> None:
        """Count a missed last gradient, if the laps of the last step have no ``sync``."""
        if "sync" not in lap_names:
            for last_gradient in self._last_gradients.values():
                last_gradient.miss()

    def read_statistics(self, steps: int) -> float | None:
        """Return for how many seconds communication overlapped with computing, if DDP timed it."""
        interval = EARLY_INTERVAL if steps < EARLY_STEPS else LATER_INTERVAL
        self.next_reading = steps + interval
        overlap = None
        for model_id, last_gradient in self._last_gradients.items():
            model = last_gradient.model()
            private_api.set_timing_interval(model, interval)
            self.facts[model_id] = private_api.ddp_facts(model)
            if (seconds := private_api.ddp_overlap(model)) is not None:
                overlap = seconds
        return overlap
