"""Count the samples of a step, from the loaders' batches and the models' inputs.

A step consists of segments, each of which ends with one optimizer's step. A GAN's step has two.
"""

from collections.abc import Hashable

PendingBatches = dict[Hashable, list[int | None]]
"""By loader: the number of samples (None if unknown) in each batch fetched and not used yet."""


class SampleCounts:
    """Counts samples when a model trains on them; a batch that is used twice counts once."""

    def __init__(self) -> None:
        self.input_differs = False
        """Whether a model's input had another size than the batch; if so, hooks inspect batches."""
        self.adds_calls = False
        """Whether calls before one backward were added up, although they may share samples."""
        self._last_loader: Hashable = None
        self._pending: PendingBatches = {}
        self._largest_batch = 0
        self._unused = 0
        """Samples of the current batch that no model has been called with yet."""
        self._fetched = 0
        """Samples of this segment from loaders."""
        self._batchless: dict[Hashable, int] = {}
        """By model id: samples of this segment's calls that used no new batch of a loader."""
        self._called_since_backward: set[Hashable] = set()
        self._segments: list[tuple[int, int]] = []
        """For each finished segment: samples from loaders, and the largest ``_batchless`` value."""

    def fetched(self, loader: Hashable, samples: int | None) -> None:
        """Add a fetched batch; ``samples`` is None if the batch's size is unknown."""
        self._last_loader = loader
        self._pending.setdefault(loader, []).append(samples)

    def drop(self, loader: Hashable) -> None:
        """Remove a loader's oldest batch, which was not for training."""
        if self._pending.get(loader):
            self._pending[loader].pop(0)

    def train(self, samples: int | None, model: Hashable = None) -> None:
        """Count the samples of a training forward; None if its input does not show their number."""
        if not any(self._pending.values()):
            return self._train_without_batch(samples or 0, model)
        batch = self._pop_batch()
        if batch is None and samples and samples > self._largest_batch > 0:
            batch = self._largest_batch  # A guess; below, it makes the hooks inspect batches.
        self._largest_batch = max(self._largest_batch, batch or 0)
        self._unused = 0
        if samples is not None and batch is not None and batch != samples:
            # An input larger than the batch concatenates batches, or is partly generated. After a
            # smaller input, the next call may use the remaining samples.
            self.input_differs = True
            while batch < samples and any(self._pending.values()):
                batch += self._pop_batch() or 0
            samples = min(batch, samples)
            self._unused = batch - samples
        self._fetched += samples if samples is not None else batch or 0
        return None

    def _pop_batch(self) -> int | None:
        """Remove the oldest pending batch, if possible of the last loader; return its samples."""
        first = next(filter(None, self._pending.values()))
        return (self._pending.get(self._last_loader) or first).pop(0)

    def _train_without_batch(self, samples: int, model: Hashable) -> None:
        used = min(samples, self._unused)
        self._unused -= used
        self._fetched += used
        if not used and samples:
            self.adds_calls |= model in self._called_since_backward and not self._fetched
            self._called_since_backward.add(model)
            self._batchless[model] = self._batchless.get(model, 0) + samples

    def backward(self) -> None:
        """Note a backward: a later call of the same model gets other samples."""
        self._called_since_backward.clear()

    def end_segment(self) -> int:
        """End a segment; return how many segments the current step has."""
        self._segments.append((self._fetched, max(self._batchless.values(), default=0)))
        self._fetched, self._batchless = 0, {}
        self._called_since_backward.clear()
        return len(self._segments)

    def progress(self) -> tuple[int, int]:
        """Return this segment's samples so far: from loaders, and from calls without a batch."""
        return self._fetched, max(self._batchless.values(), default=0)

    def split_segment(self, ends: list[tuple[int, int]]) -> int:
        """End segments where ``progress`` was as given; return how many the current step has."""
        fetched = batchless = 0
        for end in ends:
            self._segments.append((end[0] - fetched, max(end[1] - batchless, 0)))
            fetched, batchless = end
        self._fetched -= fetched
        self._batchless = {
            model: max(samples - batchless, 0) for model, samples in self._batchless.items()
        }
        return len(self._segments)

    def close(self, count: int) -> int:
        """End a step that consists of the first ``count`` segments; return its samples."""
        closed, self._segments = self._segments[:count], self._segments[count:]
        fetched = sum(samples for samples, _ in closed)
        return fetched or max((samples for _, samples in closed), default=0)

    def state(self) -> PendingBatches:
        """Return the state that decides how the next step is counted."""
        pending = {loader: list(sizes) for loader, sizes in self._pending.items() if sizes}
        return {**pending, "unused": [self._unused]} if self._unused else pending
