"""Count the samples of a step, from the loaders' batches and the models' inputs.

A segment is the part of a step up to the end of one optimizer's step; a GAN's step has two.
"""

from collections.abc import Hashable

PendingBatches = dict[Hashable, list[int | None]]
"""Samples of the batches that were fetched and not used yet, by loader."""


class SampleCounts:
    """Counts samples where they are trained on: a batch that is used twice counts once."""

    def __init__(self) -> None:
        self.input_differs = False
        """Whether a model's input had another size than the batch: then batches are inspected."""
        self.adds_calls = False
        """Whether several calls before one backward, which may share samples, were all counted."""
        self._last_loader: Hashable = None
        self._pending: PendingBatches = {}
        self._largest_batch = 0
        self._unused = 0
        """Samples of the current batch that no model has been called with yet."""
        self._fetched = 0
        """Samples of this segment from loaders."""
        self._called: dict[Hashable, int] = {}
        """Samples of this segment without a new batch (a reused one, or no loader), by model id."""
        self._called_since_backward: set[Hashable] = set()
        self._segments: list[tuple[int, int]] = []
        """Finished segments: samples from loaders, and the largest value of ``_called``."""

    def fetched(self, loader: Hashable, samples: int | None) -> None:
        """Add a fetched batch; None if its size is unknown."""
        self._last_loader = loader
        self._pending.setdefault(loader, []).append(samples)

    def drop(self, loader: Hashable) -> None:
        """Remove a loader's oldest batch: it was not for training."""
        if self._pending.get(loader):
            self._pending[loader].pop(0)

    def train(self, samples: int | None, model: Hashable = None) -> None:
        """Count a training forward with so many samples; None if the input does not show it."""
        if not any(self._pending.values()):
            return self._train_without_batch(samples or 0, model)
        batch = self._pop_batch()
        if batch is None and samples and samples > self._largest_batch > 0:
            batch = self._largest_batch  # Its size is unknown; from now on batches are inspected.
        self._largest_batch = max(self._largest_batch, batch or 0)
        self._unused = 0
        if samples is not None and batch is not None and batch != samples:
            # A larger input was generated in part, or concatenates batches. After a smaller input
            # the remaining samples may come with the next call.
            self.input_differs = True
            while batch < samples and any(self._pending.values()):
                batch += self._pop_batch() or 0
            samples = min(batch, samples)
            self._unused = batch - samples
        self._fetched += samples if samples is not None else batch or 0
        return None

    def _pop_batch(self) -> int | None:
        """Remove one pending batch, the newest loader's first; return its samples."""
        first = next(filter(None, self._pending.values()))
        return (self._pending.get(self._last_loader) or first).pop(0)

    def _train_without_batch(self, samples: int, model: Hashable) -> None:
        used = min(samples, self._unused)
        self._unused -= used
        self._fetched += used
        if not used and samples:
            self.adds_calls |= model in self._called_since_backward and not self._fetched
            self._called_since_backward.add(model)
            self._called[model] = self._called.get(model, 0) + samples

    def backward(self) -> None:
        """Note a backward: a later call of the same model gets other samples."""
        self._called_since_backward.clear()

    def end_segment(self) -> int:
        """End a segment; return how many segments the current step has."""
        self._segments.append((self._fetched, max(self._called.values(), default=0)))
        self._fetched, self._called = 0, {}
        self._called_since_backward.clear()
        return len(self._segments)

    def close(self, segments: int) -> int:
        """End a step after its first ``segments``; return its samples."""
        closed, self._segments = self._segments[:segments], self._segments[segments:]
        fetched = sum(samples for samples, _ in closed)
        return fetched or max((samples for _, samples in closed), default=0)

    def state(self) -> PendingBatches:
        """Return the state that decides how the next step is counted."""
        pending = {loader: list(sizes) for loader, sizes in self._pending.items() if sizes}
        return {**pending, "unused": [self._unused]} if self._unused else pending
