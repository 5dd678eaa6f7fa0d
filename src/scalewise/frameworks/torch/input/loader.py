"""Every batch of a training in the order in which it is needed, made ready beforehand.

Training and validation are one stream through one pool of workers, so that the
first batches of a pass are there when the pass before it ends. On an
accelerator bytes travel out of pinned memory in a queue of their own, and
become what the model sees over there.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from scalewise.errors import ScalewiseError
from scalewise.frameworks.sampler import Indices, Shards
from scalewise.frameworks.torch.input.batches import IGNORED_LABEL, Batch, ImageFiles
from scalewise.frameworks.torch.input.data_sets import Data
from scalewise.frameworks.torch.precision import input_dtype
from scalewise.probe.torch.device import module_of
from scalewise.spec import RunSpec


class Pass(NamedTuple):
    """A pass over the data from one of its steps on, or over what validates after it."""

    epoch: int
    place: int = 0
    checks: bool = False


class Request(NamedTuple):
    """The samples of one batch."""

    epoch: int
    checks: bool
    indices: Indices
    """Not a tensor: as that it would go to a worker in a file of its own."""


class PassSampler(Sampler[Request]):
    """What one rank will ask for, pass by pass, from any of them on."""

    def __init__(
        self, shards: Shards, checks: Sequence[Indices], spec: RunSpec, total: int
    ) -> None:
        self._shards, self._checks = shards, checks
        self._micro, self._spec = spec.accumulate, spec
        self._end = total
        """The optimizer step that ends the training, counted by passes."""
        self.first = Pass(0)

    def end_after(self, steps: int, here: Pass) -> None:
        """Let so many steps be left from here on, whatever was done elsewhere to come here."""
        self._end = here.epoch * self._shards.steps + here.place + steps

    def passes(self) -> Iterator[Pass]:
        """Return the passes to come: every epoch is checked, or the end of so many steps."""
        now = self.first
        while True:
            yield now
            done = min((now.epoch + 1) * self._shards.steps, self._end)
            due = self._spec.validates(now.epoch) if self._spec.epochs else done == self._end
            if due and not now.checks:
                now = Pass(now.epoch, checks=True)
            elif done < self._end:
                now = Pass(now.epoch + 1)
            else:
                return

    def size(self, one: Pass) -> int:
        """Return the number of batches of a pass."""
        if one.checks:
            return len(self._checks)
        begun = one.epoch * self._shards.steps
        steps = min(self._shards.steps, self._end - begun) - one.place
        return max(0, steps) * self._micro

    def __iter__(self) -> Iterator[Request]:
        for one in self.passes():
            if not one.checks:
                self._shards.set_epoch(one.epoch, one.place)
            batches = self._checks if one.checks else self._shards
            for indices in islice(batches, self.size(one)):
                yield Request(one.epoch, one.checks, indices)


LoadedBatch = tuple[Tensor, Tensor, list[str]] | ScalewiseError
"""A batch, and the files that should have been in it and cannot be read; or why there is none.

That is handed over, not raised: a loader would make a traceback of it on its way from a worker.
"""


class BatchDataset(Dataset[LoadedBatch]):
    """The batch of a request, as it travels or as the model sees it."""

    def __init__(self, data: Data, *, finished: bool) -> None:
        self._data = data
        self._finish = data.finish.on(torch.device("cpu")) if finished else None

    def __getitem__(self, request: Request) -> LoadedBatch:
        samples = self._data.validation if request.checks else self._data.train
        indices = torch.from_numpy(request.indices)
        try:
            inputs, labels = samples.batch(indices, request.epoch)
        except ScalewiseError as problem:
            return problem
        lost: list[str] = []
        if isinstance(samples, ImageFiles):
            lost = [samples.path(n) for n in indices[labels == IGNORED_LABEL].tolist()]
        return (self._finish(inputs) if self._finish else inputs), labels, lost


class BatchLoader:
    """The batches of one rank. Whoever asks in the usual order never waits for a new beginning."""

    def __init__(self, data: Data, order: PassSampler, spec: RunSpec, device: torch.device) -> None:
        self._order, self._device = order, device
        self.finish = data.finish.on(device, input_dtype(spec, device))
        """Makes of a batch on the device what a model sees."""
        travels = device.type == "cuda" and not data.on_device
        self._loader: DataLoader[LoadedBatch] = DataLoader(
            BatchDataset(data, finished=device.type == "cpu"),
            batch_size=None,
            sampler=order,
            num_workers=0 if data.on_device else spec.workers,
            pin_memory=travels,
            generator=torch.Generator(),  # The training's own chance is not drawn from.
        )
        self._batches: Iterator[Batch] = iter(())
        self._travels: DevicePrefetcher | None = None
        self._passes: Iterator[Pass] = iter(())
        self._next: Pass | None = None
        self._left = 0
        """Batches of this pass that nobody has taken yet."""
        self._losses: deque[int] = deque()
        self.lost = 0
        """Samples of the batch that was taken last which do not count: they cannot be read."""
        self.broken: set[str] = set()
        """The files of all such samples so far, and of a batch or two ahead."""

    def start(self, first: Pass) -> None:
        """Begin to make batches ready, of this pass at first."""
        self._order.first = first
        self._passes = self._order.passes()
        self._next, self._left = next(self._passes), 0
        self._losses.clear()
        self._batches = _sifted(iter(self._loader), self._losses, self.broken)
        if self._device.type != "cpu":
            self._batches = self._travels = DevicePrefetcher(
                self._batches, self.finish, self._device
            )

    def go_on(self, here: Pass, steps: int) -> None:
        """Have so many more steps come, from here on."""
        self._order.end_after(steps, here)
        self.begin(here)

    def begin(self, one: Pass) -> None:
        """Have the batches of this pass come now."""
        if self._left or one != self._next:
            self.start(one)
        self._left = self._order.size(one)
        self._next = next(self._passes, None)

    def take(self) -> Batch:
        """Return the next batch of the pass."""
        self._left -= 1
        inputs, labels = next(self._batches)
        self.lost = self._losses.popleft()
        return inputs, labels

    def close(self) -> None:
        """End the workers."""
        self._batches, self._travels = iter(()), None

    def ahead(self) -> bool:
        """Send the batch after this one on its way to an accelerator; say if there is one."""
        return self._travels is not None and self._travels.depart()


def _sifted(
    answers: Iterable[LoadedBatch], losses: deque[int], broken: set[str]
) -> Iterator[Batch]:
    """Pass batches on, and keep what is said of files that cannot be read.

    It knows nobody's feed: a feed that is let go must let go of its workers.
    """
    for answer in answers:
        if isinstance(answer, ScalewiseError):
            raise answer
        inputs, labels, lost = answer
        broken.update(lost)
        losses.append(len(lost))
        yield inputs, labels


class DevicePrefetcher:
    """Batches that travel to an accelerator while it computes, one ahead of its need."""

    def __init__(
        self, batches: Iterator[Batch], finish: Callable[[Tensor], Tensor], device: torch.device
    ) -> None:
        self._batches, self._finish, self._device = batches, finish, device
        self._handle = module_of(device.type)
        self._queue = self._handle.Stream(device)
        self._under_way: tuple[Batch, Any] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._under_way is None and not self.depart():
            raise StopIteration
        assert self._under_way is not None
        batch, arrived = self._under_way
        self._under_way = None
        computes = self._handle.current_stream(self._device)
        arrived.wait(computes)
        for each in batch:  # Their memory belongs to the other queue, which must not reuse it yet.
            each.record_stream(computes)
        return batch

    def depart(self) -> bool:
        """Send the next batch on its way, if there is one and none is under way."""
        if self._under_way is not None:
            return False
        with self._handle.stream(self._queue):  # What lies on the device is put together in it.
            found = next(self._batches, None)
            if found is None:
                return False
            inputs, labels = (each.to(self._device, non_blocking=True) for each in found)
            batch = self._finish(inputs), labels
        arrived = self._handle.Event()
        arrived.record(self._queue)
        self._under_way = batch, arrived
        return True
