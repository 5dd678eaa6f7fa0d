"""Count the batches that loaders give, by pass: one iterator over a loader."""

import itertools
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import BatchSampler

PASS = "_scalewise_pass"
"""The attribute of a loader's iterator that holds its ``Pass``."""
_keys: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_next_key = itertools.count(1)
MAX_PASSES = 1000
"""Passes that are kept separately; older ones are added up."""


def loader_key(loader: Any) -> int:
    """Return a number that only this loader has: ``id`` may be that of a deleted loader, whose
    iterator is still being read.
    """
    try:
        return _keys.setdefault(loader, next(_next_key))
    except TypeError:  # It has no hash, or cannot be referenced weakly.
        return id(loader)


def is_own_sampler(sampler: Any) -> bool:
    """Return whether a sampler is one of PyTorch's own; another may give a length that is not how
    many samples it draws.
    """
    return type(sampler).__module__.startswith("torch.")


class LoaderSize:
    """How many samples the batches and the passes of a loader have."""

    __slots__ = (
        "hides_sizes",
        "is_own",
        "least_rows",
        "length",
        "loader_id",
        "rows",
        "size",
        "smallest",
        "workers",
    )

    def __init__(self, loader: Any) -> None:
        self.loader_id = loader_key(loader)
        sampler: Any = getattr(loader, "batch_sampler", None)
        # A batch sampler of a library may divide its batches among ranks.
        is_plain = type(sampler) is BatchSampler
        self.size: int | None = int(sampler.batch_size) if is_plain else None
        """Samples that are drawn for a batch; None if unknown."""
        try:
            self.length: int | None = len(sampler.sampler) if is_plain else None
        except TypeError:  # A sampler without a length.
            self.length = None
        self.is_own = self.length is not None and is_own_sampler(sampler.sampler)
        """Whether PyTorch's own sampler says this length; a program's may draw more or fewer."""
        self.workers = int(getattr(loader, "num_workers", 0))
        self.rows = 0
        """Samples of the largest batch that was inspected; 0 if none was."""
        self.least_rows = 0
        """Of a loader whose batches have no known size: samples of the smallest one inspected."""
        self.hides_sizes = False
        """Whether an inspected batch showed no size, and nothing says how many are drawn for it."""
        self.smallest: int | None = None
        """Samples of the smallest batch of which a collate function left some out."""

    def note_batch(self, samples: int, drawn: int | None) -> None:
        """Note the samples of an inspected batch, and how many the sampler drew for it."""
        self.rows = max(self.rows, samples)
        self.hides_sizes |= not self.size and not samples
        if not self.size and samples:  # A sampler of its own may draw batches of several sizes.
            self.least_rows = min(self.least_rows or samples, samples)
        if self.size and drawn == self.size and samples < drawn:
            self.smallest = samples if self.smallest is None else min(self.smallest, samples)

    def samples(self, batches: int) -> tuple[int, int]:
        """Return the samples of a pass with so many batches, at least and at most."""
        least, most = batches * (self.size or self.least_rows), batches * (self.size or self.rows)
        if self.length is not None:
            least = min(most, self.length)
            most = least if self.is_own else most
        elif batches:  # The last batch of each worker may be smaller.
            size = self.size or self.least_rows
            least = max(batches - max(self.workers, 1), 0) * size + 1
        if self.size and self.rows:  # A collated batch may have other rows than drawn samples.
            factor = self.rows / self.size
            least, most = int(least * min(factor, 1)), int(most * max(factor, 1))
        if self.size and self.smallest is not None:
            least = least * self.smallest // self.size
        return least, most


class Pass:
    """What one iterator of a loader has given."""

    __slots__ = ("batches", "first", "last", "loader", "trained")

    def __init__(self, loader: LoaderSize) -> None:
        self.loader = loader
        self.batches = self.first = self.last = 0
        """The batches; and which fetches, of all loaders, were the first and the last."""
        self.trained = False
        """Whether a backward followed a batch before the next fetch of any loader."""


class LoaderPasses:
    """All passes of a program."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []
        self._sizes: dict[int, LoaderSize] = {}
        self._folded: dict[str, int] = {"least": 0, "most": 0, "batches": 0, "passes": 0}

    def begin(self, loader: Any) -> Pass:
        """Begin a pass."""
        known = self._sizes.get(loader_key(loader))
        size = LoaderSize(loader)
        if known is not None and (known.size, known.length) == (size.size, size.length):
            size = known
        self._sizes[loader_key(loader)] = size
        this = Pass(size)
        self._passes.append(this)
        if len(self._passes) > 2 * MAX_PASSES:
            old, self._passes = self._passes[:MAX_PASSES], self._passes[MAX_PASSES:]
            self._folded = add_up(old, self._folded)
        return this

    def totals(self) -> dict[str, int]:
        """Return what was given for training at least (``least``), and what all loaders gave at
        most (``most``); with the ``batches`` and ``passes`` for training.
        """
        return add_up(self._passes, self._folded)


def add_up(passes: list[Pass], totals: dict[str, int]) -> dict[str, int]:
    """Add the samples of passes to ``totals``. Of loaders that are read in turn, batch by batch,
    only the one with most samples counts for ``least``: a step may count the samples of one.
    ``most`` is 0 if it is unknown.
    """
    totals = dict(totals)
    group: dict[int, int] = {}  # Samples by loader id, of loaders that are read in turn.
    group_end = 0
    for this in sorted(passes, key=lambda one: one.first):
        least, most = this.loader.samples(this.batches)
        totals["most"] += most
        if not this.trained:
            continue
        totals["batches"] += this.batches
        totals["passes"] += 1
        if this.first > group_end:
            totals["least"] += max(group.values(), default=0)
            group = {}
        group_end = max(group_end, this.last)
        group[this.loader.loader_id] = group.get(this.loader.loader_id, 0) + least
    totals["least"] += max(group.values(), default=0)
    if any(this.loader.hides_sizes for this in passes):
        totals["most"] = 0
    return totals
