"""How many samples a step is trained on: what loaders gave, and what models were called with.

A step may hold several stretches, each ended by an optimizer's own step, such as those of a GAN.
"""

from collections.abc import Hashable

Standing = dict[Hashable, list[int | None]]
"""Batches that were fetched and not used yet, by loader, and what is left of the one in use."""


class Counts:
    """Counts samples where they are trained on: a batch that is used again counts once."""

    def __init__(self) -> None:
        self.doubts = False
        """Whether a model's input does not tell how many samples it is trained on."""
        self.adds_calls = False
        """Whether calls were added up that may be parts of one sample: nothing was loaded."""
        self._source: Hashable = None
        """The loader that gave a batch last."""
        self._waiting: Standing = {}
        self._largest = 0
        """The most samples that a loader gave at once."""
        self._rest = 0
        """What a model has not seen yet of the batch that it was given a part of."""
        self._fetched = 0
        """Of this stretch, from loaders."""
        self._called: dict[Hashable, int] = {}
        """Of this stretch, without a batch for it, by model: one used again, or no loader."""
        self._since: set[Hashable] = set()
        """Models that were called so since the last backward."""
        self._stretches: list[tuple[int, int]] = []
        """Of those that are over: samples from loaders, and the most that one model saw else."""

    def fetched(self, source: Hashable, samples: int | None) -> None:
        """A loader has given a batch."""
        self._source = source
        self._waiting.setdefault(source, []).append(samples)

    def drop(self, source: Hashable) -> None:
        """The oldest batch of a loader was not for training."""
        if self._waiting.get(source):
            self._waiting[source].pop(0)

    def trained(self, samples: int | None, model: Hashable = None) -> None:
        """A model is called to learn from so many samples; nothing if that cannot be seen."""
        if not any(self._waiting.values()):
            return self._use_again(samples or 0, model)
        fetched = self._take()
        if fetched is None and samples and samples > self._largest > 0:
            fetched = self._largest  # Nobody looked into the batch; from now on, somebody will.
        self._largest = max(self._largest, fetched or 0)
        self._rest = 0
        if samples is not None and fetched is not None and fetched != samples:
            # The model gets more than was fetched: some of it was made up, or put together.
            # Or it gets less: maybe the rest comes next.
            self.doubts = True
            while fetched < samples and any(self._waiting.values()):
                fetched += self._take() or 0
            samples = min(fetched, samples)
            self._rest = fetched - samples
        self._fetched += samples if samples is not None else fetched or 0
        return None

    def _take(self) -> int | None:
        """Use up one fetched batch; return its samples."""
        first = next(filter(None, self._waiting.values()))
        return (self._waiting.get(self._source) or first).pop(0)

    def _use_again(self, samples: int, model: Hashable) -> None:
        more = min(samples, self._rest)
        self._rest -= more
        self._fetched += more
        if not more and samples:
            self.adds_calls |= model in self._since and not self._fetched
            self._since.add(model)
            self._called[model] = self._called.get(model, 0) + samples

    def backward(self) -> None:
        """Gradients are asked for: whatever is called now is called for others."""
        self._since.clear()

    def end_stretch(self) -> int:
        """An optimizer has done its step; return the stretches since the last step's end."""
        self._stretches.append((self._fetched, max(self._called.values(), default=0)))
        self._fetched, self._called = 0, {}
        self._since.clear()
        return len(self._stretches)

    def close(self, stretches: int) -> int:
        """End a step after so many stretches; return its samples."""
        mine, self._stretches = self._stretches[:stretches], self._stretches[stretches:]
        return sum(each for each, _ in mine) or max((each for _, each in mine), default=0)

    def standing(self) -> Standing:
        """Return what decides how the next step is counted."""
        found = {source: list(left) for source, left in self._waiting.items() if left}
        return {**found, "rest": [self._rest]} if self._rest else found
