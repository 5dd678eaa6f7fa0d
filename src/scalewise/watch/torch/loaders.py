"""Gather facts of the loader that feeds training; if requested, time this loader after training."""

import sys
import time
from typing import Any

from scalewise.probe.watcher import Watcher
from scalewise.watch.torch import private_api
from scalewise.watch.torch.discovery import samples_rows_and_tensor
from scalewise.watch.torch.loader_passes import loader_key
from scalewise.watch.torch.observer import Observer

MAX_SECONDS = 5.0
MAX_BATCHES = 200
WARMUP_BATCHES = 2
"""First batches that are not measured if the loader has to start worker processes."""


class Loaders:
    """Remembers the loaders of a program; times the loader that fed the training."""

    def __init__(self, watcher: Watcher, observer: Observer) -> None:
        self._watcher, self._observer = watcher, observer
        self._should_measure = watcher.spec.loaders_alone
        self._facts: dict[int, dict[str, Any]] = {}  # The key is a loader's id, as below.
        self._loaders: dict[int, Any] = {}

    def on_epoch(self, loader: Any) -> None:
        """Remember a loader that begins an epoch."""
        size = getattr(loader, "batch_size", None)
        if size is None:
            size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
        workers = int(getattr(loader, "num_workers", 0))
        self._facts[loader_key(loader)] = {"workers": workers, "batch": size, "batches": 0}
        if self._should_measure:  # The reference keeps the loader alive until the program ends.
            self._loaders[loader_key(loader)] = loader

    def collect_at_end(self) -> dict[str, Any]:
        """Return facts of the loader that fed the training, and its throughput if requested."""
        training_loaders = self._observer.pauses.training_loaders
        loader_ids = [loader_id for loader_id in self._facts if loader_id in training_loaders]
        if not loader_ids:
            return {}
        facts = {"rate": None, **self._facts[loader_ids[-1]]}
        if self._should_measure and self._watcher.steps:
            began = time.perf_counter()
            self._watcher.set_enabled(enabled=False)  # These fetches belong to no step.
            try:
                facts |= measure_alone(self._loaders[loader_ids[-1]])
            except Exception as problem:
                print(f"scalewise: measuring the loader alone failed: {problem!r}", file=sys.stderr)
            self._watcher.span("loaders", began, time.perf_counter())
        return {"loader": facts}


def measure_alone(loader: Any) -> dict[str, Any]:
    """Return a loader's samples per second (``rate``, if known) and the number of measured batches.

    >>> measure_alone([[1.0]] * 3)
    {'batches': 0}
    """
    skipped = WARMUP_BATCHES if getattr(loader, "num_workers", 0) else 0
    deadline = time.perf_counter() + MAX_SECONDS
    samples, batches = 0, 0
    began = ended = time.perf_counter()
    iterator = iter(loader)
    for index, batch in enumerate(iterator):
        ended = time.perf_counter()
        drawn, exact = private_api.drawn_samples(iterator), private_api.draws_exactly(iterator)
        size = samples_rows_and_tensor(batch, drawn, exact=exact)[0]
        if index < skipped:
            began = ended
        elif size is not None:
            samples, batches = samples + size, batches + 1
        if ended > deadline or batches >= MAX_BATCHES:
            break
    if not batches or ended <= began:
        return {"batches": 0}
    return {"rate": samples / (ended - began), "batches": batches}
