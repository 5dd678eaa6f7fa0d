"""Watch the last gradients of DDP models, and read DDP's own statistics."""

from collections.abc import Callable
from typing import Any

from scalewise.probe.torch.last_gradient import LastGradient
from scalewise.watch.torch import private_api

EARLY_STEPS = 100
EARLY_INTERVAL, LATER_INTERVAL = 10, 100
"""DDP times every 10th of the first ``EARLY_STEPS`` steps, and then every 100th step."""


class DdpModels:
    """The DDP models of a user's program."""

    def __init__(self, on_last_gradient: Callable[..., None]) -> None:
        self.next_reading_step = 2
        """DDP's statistics are read next after this step."""
        self._on_last_gradient = on_last_gradient
        self.facts: dict[int, dict[str, Any]] = {}
        """By model id: the sizes of DDP's gradient buckets, if DDP reports them."""
        self._last_gradients: dict[int, LastGradient] = {}

    def add(self, model: Any) -> set[str]:
        """Watch a model. Return a set, filled later with the names of its unused parameters."""
        private_api.set_timing_interval(model, EARLY_INTERVAL)
        last_gradient = LastGradient(model, self._on_last_gradient)
        self._last_gradients[id(model)] = last_gradient
        return last_gradient.unused

    def forget(self, model_id: int) -> None:
        """Forget a deleted model, because a new model may get the same id."""
        self._last_gradients.pop(model_id, None)

    def remove(self) -> None:
        for last_gradient in self._last_gradients.values():
            last_gradient.remove_hooks()

    def check_sync(self, activities: list[str]) -> None:
        """If the last step had no activity ``sync``, tell each model that its hook did not run."""
        if "sync" not in activities:
            for last_gradient in self._last_gradients.values():
                if last_gradient.ranks > 1:
                    last_gradient.miss()

    def read_statistics(self, steps: int) -> float | None:
        """Return the seconds in which communication overlapped with computing, None if unknown."""
        interval = EARLY_INTERVAL if steps < EARLY_STEPS else LATER_INTERVAL
        self.next_reading_step = steps + interval
        overlap = None
        for model_id, last_gradient in self._last_gradients.items():
            model = last_gradient.model()
            private_api.set_timing_interval(model, interval)
            self.facts[model_id] = private_api.ddp_facts(model)
            if (seconds := private_api.ddp_overlap(model)) is not None:
                overlap = seconds
        return overlap
