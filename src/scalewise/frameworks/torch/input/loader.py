"""Load the batches of a run in the order in which they are needed, ahead of time.

One pool of workers serves training and validation, so it loads a pass before that begins. Bytes
are copied to an accelerator from pinned memory on a separate stream, and preprocessed there.
"""

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
    """A pass over the training data from a step on, or over the validation data after an epoch."""

    epoch: int
    first_step: int = 0
    validation: bool = False


Request = tuple[Pass, Indices]
"""A batch's pass and sample indices (NumPy: workers would get a tensor in a shared-memory file)."""


class PassSampler(Sampler[Request]):
    """Yields a request for every batch that this rank needs, beginning with ``first_pass``."""

    def __init__(
        self, shards: Shards, validation_batches: Sequence[Indices], spec: RunSpec, total_steps: int
    ) -> None:
        self._shards, self._validation_batches, self._spec = shards, validation_batches, spec
        self._end = total_steps
        """The optimizer step at which training ends, counted from the start of epoch 0."""
        self.first_pass = Pass(0)

    def end_after(self, steps: int, position: Pass) -> None:
        """Set the end of training to ``steps`` optimizer steps after a position in the data."""
        self._end = position.epoch * self._shards.steps + position.first_step + steps

    def passes(self) -> Iterator[Pass]:
        """Yield the passes from ``first_pass`` on, training and validation."""
        current = self.first_pass
        while True:
            yield current
            end = min((current.epoch + 1) * self._shards.steps, self._end)
            is_due = self._spec.validates(current.epoch) if self._spec.epochs else end == self._end
            if is_due and not current.validation:  # Validation follows the training pass.
                current = Pass(current.epoch, validation=True)
            elif end < self._end:
                current = Pass(current.epoch + 1)
            else:
                return

    def batch_count(self, data_pass: Pass) -> int:
        """Return the number of batches of a pass."""
        if data_pass.validation:
            return len(self._validation_batches)
        steps_before = data_pass.epoch * self._shards.steps
        steps = min(self._shards.steps, self._end - steps_before) - data_pass.first_step
        return max(0, steps) * self._spec.accumulate

    def __iter__(self) -> Iterator[Request]:
        for data_pass in self.passes():
            if not data_pass.validation:
                self._shards.set_epoch(data_pass.epoch, data_pass.first_step)
            batches = self._validation_batches if data_pass.validation else self._shards
            for indices in islice(batches, self.batch_count(data_pass)):
                yield data_pass, indices


LoadedBatch = tuple[Tensor, Tensor, list[str]]
"""Inputs, labels, and the files of this batch that cannot be read."""


class BatchDataset(Dataset[LoadedBatch | ScalewiseError]):
    """Loads the batch of a request, and preprocesses it if ``preprocess`` is set."""

    def __init__(self, data: Data, *, preprocess: bool) -> None:
        self._data = data
        self._preprocess = data.preprocessing.build(torch.device("cpu")) if preprocess else None

    def __getitem__(self, request: Request) -> LoadedBatch | ScalewiseError:
        data_pass, indices = request[0], torch.from_numpy(request[1])
        samples = self._data.validation if data_pass.validation else self._data.train
        try:
            inputs, labels = samples.batch(indices, data_pass.epoch)
        except ScalewiseError as error:  # If a worker raised it, users would see a traceback.
            return error
        unreadable: list[str] = []
        if isinstance(samples, ImageFiles):
            unreadable = [samples.path(n) for n in indices[labels == IGNORED_LABEL].tolist()]
        return (self._preprocess(inputs) if self._preprocess else inputs), labels, unreadable


class BatchLoader:
    """Loads the batches of one rank, in the sampler's order; another order restarts the workers."""

    def __init__(
        self, data: Data, sampler: PassSampler, spec: RunSpec, device: torch.device
    ) -> None:
        self._sampler, self._device = sampler, device
        self.preprocess = data.preprocessing.build(device, input_dtype(spec, device))
        """Turns the raw inputs of a batch on the device into the model's inputs."""
        self._loader: DataLoader[LoadedBatch | ScalewiseError] = DataLoader(
            BatchDataset(data, preprocess=device.type == "cpu"),
            batch_size=None,
            sampler=sampler,
            num_workers=0 if data.on_device else spec.workers,
            pin_memory=device.type == "cuda" and not data.on_device,
            generator=torch.Generator(),  # Do not draw from the training's random numbers.
        )
        self._batches: Iterator[LoadedBatch] = iter(())
        self._prefetcher: DevicePrefetcher | None = None
        self._passes: Iterator[Pass] = iter(())
        self._next_pass: Pass | None = None
        self._remaining = 0
        """The number of batches of this pass that ``next_batch`` has not returned yet."""
        self.skipped_samples = 0
        """The number of samples in the last returned batch whose files cannot be read."""
        self.unreadable_files: set[str] = set()
        """The files that could not be read, of all batches so far."""

    def restart(self, first: Pass) -> None:
        """Start to load batches from a pass on; this also restarts the workers."""
        self._sampler.first_pass = first
        self._passes = self._sampler.passes()
        self._next_pass, self._remaining = next(self._passes), 0
        self._batches = _raise_errors(iter(self._loader))
        if self._device.type != "cpu":
            self._batches = self._prefetcher = DevicePrefetcher(
                self._batches, self.preprocess, self._device
            )

    def resume(self, position: Pass, steps: int) -> None:
        """Continue from a position in the data, for ``steps`` more optimizer steps."""
        self._sampler.end_after(steps, position)
        self.begin(position)

    def begin(self, data_pass: Pass) -> None:
        """Begin a pass: ``next_batch`` then returns its batches."""
        if self._remaining or data_pass != self._next_pass:
            self.restart(data_pass)
        self._remaining = self._sampler.batch_count(data_pass)
        self._next_pass = next(self._passes, None)

    def next_batch(self) -> Batch:
        """Return the next batch of the pass."""
        self._remaining -= 1
        inputs, labels, unreadable = next(self._batches)
        self.skipped_samples = len(unreadable)
        self.unreadable_files.update(unreadable)
        return inputs, labels

    def close(self) -> None:
        """Stop the workers: they end when nothing refers to their iterator."""
        self._batches, self._prefetcher = iter(()), None

    def prefetch(self) -> bool:
        """Start to copy the next batch to an accelerator; return whether a copy was started."""
        return self._prefetcher is not None and self._prefetcher.start_copy()


def _raise_errors(batches: Iterable[LoadedBatch | ScalewiseError]) -> Iterator[LoadedBatch]:
    # A function, because a method would keep a reference to the loader, and so its workers.
    for batch in batches:
        if isinstance(batch, ScalewiseError):
            raise batch
        yield batch


class DevicePrefetcher:
    """Copies batches to an accelerator while it computes, one batch ahead."""

    def __init__(
        self,
        batches: Iterator[LoadedBatch],
        preprocess: Callable[[Tensor], Tensor],
        device: torch.device,
    ) -> None:
        self._batches, self._preprocess, self._device = batches, preprocess, device
        self._module = module_of(device.type)
        self._stream = self._module.Stream(device)
        self._pending: tuple[LoadedBatch, Any] | None = None
        """The batch that is being copied, and the event at the end of its copy."""

    def __iter__(self) -> Iterator[LoadedBatch]:
        return self

    def __next__(self) -> LoadedBatch:
        if self._pending is None and not self.start_copy():
            raise StopIteration
        assert self._pending is not None
        batch, copy_event = self._pending
        self._pending = None
        compute_stream = self._module.current_stream(self._device)
        copy_event.wait(compute_stream)
        # The tensors' memory belongs to the copy stream, which must not reuse it yet.
        for tensor in batch[:2]:
            tensor.record_stream(compute_stream)
        return batch

    def start_copy(self) -> bool:
        """Start to copy the next batch; return False if a copy is pending or no batch is left."""
        if self._pending is not None:
            return False
        with self._module.stream(self._stream):  # If data is on the device, it is indexed here.
            batch = next(self._batches, None)
            if batch is None:
                return False
            inputs, labels = (tensor.to(self._device, non_blocking=True) for tensor in batch[:2])
            inputs = self._preprocess(inputs)
        copy_event = self._module.Event()
        copy_event.record(self._stream)
        self._pending = (inputs, labels, batch[2]), copy_event
        return True
