"""The training's loader, and how fast it is alone.

Alone means without the training beside it: after the last step, a fresh
iterator, for a few seconds. All ranks do it at about the same time, as in the
training.
"""

import sys
import time
from typing import Any

from scalewise.watch.guest import Guest
from scalewise.watch.torch import private_api
from scalewise.watch.torch.discovery import batch_of
from scalewise.watch.torch.observer import Observer

SECONDS = 5.0
"""The longest it may take."""
BATCHES = 200
"""The most batches it takes."""
FIRST = 2
"""Batches that are not counted where workers must start."""


class Loaders:
    """Remembers the loaders of a program; times the one that fed the training."""

    def __init__(self, guest: Guest, observer: Observer) -> None:
        self._guest, self._observer = guest, observer
        self._alone = bool(guest.settings.get("loaders_alone"))
        self._known: dict[int, dict[str, Any]] = {}
        self._kept: dict[int, Any] = {}

    def iterates(self, loader: Any) -> None:
        """A loader begins a pass."""
        self._known[id(loader)] = about(loader)
        if self._alone:  # It would be gone when the program ends.
            self._kept[id(loader)] = loader

    def at_end(self) -> dict[str, Any]:
        """Return what is known of the loader that fed the training, and its rate if asked for."""
        fed = [each for each in self._known if each in self._observer.sources]
        if not fed:
            return {}
        told = {"rate": None, **self._known[fed[-1]]}
        if self._alone and self._guest.steps:
            began = time.perf_counter()
            self._guest.switch(on=False)  # What is fetched now is for no step.
            try:
                told |= alone(self._kept[fed[-1]])
            except Exception as problem:
                print(f"scalewise: the loader alone failed: {problem!r}", file=sys.stderr)
            self._guest.span("loaders", began, time.perf_counter())
        return {"loader": told}


def about(loader: Any) -> dict[str, Any]:
    """Return a loader's worker processes, and its samples per batch where it says so."""
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return {"workers": int(getattr(loader, "num_workers", 0)), "batch": size, "batches": 0}


def alone(loader: Any, seconds: float = SECONDS, most: int = BATCHES) -> dict[str, Any]:
    """Return the samples per second of this loader, and from how many batches that is known.

    >>> alone([[1.0]] * 3)
    {'batches': 0}
    """
    skipped = FIRST if getattr(loader, "num_workers", 0) else 0
    late = time.perf_counter() + seconds
    samples, batches = 0, 0
    began = ended = time.perf_counter()
    iterator = iter(loader)
    for place, batch in enumerate(iterator):
        ended = time.perf_counter()
        size = batch_of(batch, private_api.drawn(iterator))[0]
        if place < skipped:
            began = ended
        elif size is not None:
            samples, batches = samples + size, batches + 1
        if ended > late or batches >= most:
            break
    if not batches or ended <= began:
        return {"batches": 0}
    return {"rate": samples / (ended - began), "batches": batches}
