"""Count the samples of a step, from the loaders' batches and the models' inputs."""

from collections.abc import Hashable

PendingBatches = dict[Hashable, list[int | None]]
"""Samples of the batches that were fetched and not used yet, by loader."""


class SampleCounts:
    """Counts samples where they are trained on: a batch that is used twice counts once."""

    def __init__(self) -> None:
        self.input_differs = False
        """Whether a model's input had another size than the batch: then batches are inspected."""
        self.adds_calls = False
        """Whether calls without a batch were summed that may be parts of one sample."""
        self._last_loader: Hashable = None
        self._pending: PendingBatches = {}
        self._largest_batch = 0
        self._unused = 0
        """Samples of the current batch that no model has been called with yet."""
        self._fetched = 0
        """Samples of this segment from loaders."""
        self._called: dict[Hashable, int] = {}
        """Samples of this segment without a new batch, by model: a batch reused, or no loader."""
        self._called_since_backward: set[Hashable] = set()
        self._segments: list[tuple[int, int]] = []
        """Finished segments (each ends with an optimizer's step, as in a GAN): samples from
        loaders, and the most that one model had otherwise.
        """

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
            batch = self._largest_batch  # Not inspected; from now on batches are.
        self._largest_batch = max(self._largest_batch, batch or 0)
        self._unused = 0
        if samples is not None and batch is not None and batch != samples:
            # More than was fetched: some of it was generated, or batches were concatenated.
            # Or less: the rest may come with the next call.
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
        """Note a backward: later calls of the same model have other samples."""
        self._called_since_backward.clear()

    def end_segment(self) -> int:
        """End a segment with an optimizer's step; return the segments of the current step."""
        self._segments.append((self._fetched, max(self._called.values(), default=0)))
        self._fetched, self._called = 0, {}
        self._called_since_backward.clear()
        return len(self._segments)

    def close(self, segments: int) -> int:
        """End a step after so many segments; return its samples."""
        closed, self._segments = self._segments[:segments], self._segments[segments:]
        fetched = sum(samples for samples, _ in closed)
        return fetched or max((samples for _, samples in closed), default=0)

    def state(self) -> PendingBatches:
        """Return what decides how the next step is counted."""
        pending = {loader: list(sizes) for loader, sizes in self._pending.items() if sizes}
        return {**pending, "rest": [self._unused]} if self._unused else pending
