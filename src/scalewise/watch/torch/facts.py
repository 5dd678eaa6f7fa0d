"""Gather facts that explain bad scaling and that timings do not show.

Almost all facts come from the first steps. After steps 1, 2, 4, 8 … the weights are summed: equal
sums show equal models. Facts make the host wait only in the first batches and at the end.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import IterableDataset
from torch.utils.data.distributed import DistributedSampler

from scalewise.probe.environment import usable_cores, write_environment
from scalewise.probe.torch import device as devices
from scalewise.probe.watcher import Watcher
from scalewise.watch.torch.call_counters import CallCounters
from scalewise.watch.torch.fingerprints import (
    WeightSums,
    batch_digest,
    is_model_parallel,
    is_sharded,
)
from scalewise.watch.torch.forward_uses import find_tensors
from scalewise.watch.torch.manual_updates import ManualUpdates

COMPARED_BATCHES = 3  # Their digests show whether ranks read the same samples.
WAIT_STEPS = (5, 25)
"""Between these two steps, the program's waits for a device are counted."""
UNSEEN_LIBRARIES = {"apex", "colossalai", "deepspeed", "hivemind", "horovod", "megatron"}
"""Libraries that exchange gradients without PyTorch's collectives."""
LAST_EXAMINED_STEP = 50
"""After this step, calls of models are not examined for facts any more."""


class Facts:
    """What is recorded about one rank, apart from its times."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.device = torch.device("cpu")
        self.noted: dict[str, Any] = {}
        """Facts by the keys of ``ProgramFacts`` in record/schema.py; unknown facts are absent."""
        self._calls = CallCounters()  # Of PyTorch functions: waits, emptied caches, autocast.
        self.compiled = False
        self._weights: WeightSums | None = None
        self._ddp: list[tuple[bool, set[str]]] = []
        """For each DDP model: its ``find_unused_parameters``, and its unused parameters' names."""
        self.exchanged = False
        """Whether a collective was observed that may average gradients or weights."""
        self._models_examined = False
        """Whether the examination of models has ended."""
        self.call_may_show_facts = True
        """Whether the next call of a model may show new facts."""
        self._digests: list[str | None] = []
        self._batch: Any = None
        """The first tensor of a loader's newest batch, until ``COMPARED_BATCHES`` were digested."""
        self._input_rows = 0
        """The first size of the model's input."""
        self._time_first_sides: set[int] = set()
        """Which side of the input of layers that have the time first is as long as that: 1 if the
        model has turned its batch."""
        self._is_shifted = False
        """Whether a model's inputs are a text and its next tokens, with the time first."""
        self._has_loader = False
        self._loader_epoch: tuple[int, int, int | None] | None = None
        """Dataset id, workers and sampler's epoch of the newest loader; training clears it."""
        self._dataset_id = 0
        """The id of the dataset that feeds training."""
        self._sampler_epochs: set[int] = set()  # Distinct values of the sampler's ``epoch``.
        self._epochs = 0  # Epochs that the training's loader has begun.
        self._first_optimizer_id = 0
        self.next_step = 1
        """Facts are gathered next after this step."""
        self._next_weights_step = 1
        self._exchanges = 0
        """Exchanges between steps, as far as each was followed by a call of a model."""
        self._exchange_pending = False
        """Whether the weights are summed at the next call of a model."""

    def install(self) -> None:
        with self._optional("calls"):
            self._calls.install()

    def expect_compiler(self) -> None:
        """Record that the program compiles; remove our wrappers, so that they are not traced."""
        if not self.compiled:
            self.compiled = True
            self._calls.restore()

    def add_ddp_model(self, model: Any, unused: set[str]) -> None:
        """Note a DDP model; ``unused`` is filled later with the names of its unused parameters."""
        self._ddp.append((bool(getattr(model, "find_unused_parameters", False)), unused))
        self._weights = None  # The next ``on_call`` then records the facts of this model.
        self.exchanged = True

    def on_call(self, model: Any, tensor: Any, inputs: Any) -> None:
        """Gather facts from a training call of a model; ``tensor`` is the first of its inputs."""
        with self._optional("call"):
            if self._loader_epoch is not None:
                self._dataset_id, self.noted["workers"], sampler_epoch = self._loader_epoch
                self._loader_epoch = None
                self._epochs += 1
                if sampler_epoch is not None:
                    self._sampler_epochs.add(sampler_epoch)
            if self._exchange_pending and self._weights is not None:
                self._exchange_pending = False
                self._weights.compute_averaged(self._exchanges)
            if len(self._digests) < COMPARED_BATCHES:
                self._note_batch(tensor)
            if not self._models_examined:
                if self._weights is None:
                    self._note_model(model, tensor, inputs)
                if not self.noted.get("autocast"):
                    self.noted["autocast"] = torch.is_autocast_enabled(self.device.type)
        self.call_may_show_facts = not self._models_examined or self._loader_epoch is not None

    def on_time_first_layer(self, tensor: Any) -> None:
        """Note the input of a layer inside a model, which has the time first."""
        if isinstance(tensor, torch.Tensor) and tensor.dim() == 3:
            sides = [side for side in (0, 1) if tensor.size(side) == self._input_rows]
            self._time_first_sides.update(sides[:1])

    def after_step(self, optimizer: Any) -> None:
        """Gather facts after a step of an optimizer."""
        step = self.watcher.steps
        if step < self.next_step:
            return
        next_power = 1 << step.bit_length()  # The next power of two.
        self.next_step = min(n for n in (*WAIT_STEPS, LAST_EXAMINED_STEP, next_power) if n > step)
        with self._optional("step"):
            self._note_optimizer(optimizer)
            if self.device.type != "cpu" and not self.compiled and step >= WAIT_STEPS[0]:
                self._count_waits(step)
            if step >= LAST_EXAMINED_STEP:
                self._models_examined = True
                self._calls.restore()
            if step >= self._next_weights_step:
                self._next_weights_step = next_power
                if self._weights is not None and not self.noted["sharded"]:
                    self._weights.compute(step)

    def on_exchange(self) -> bool:
        """Note an exchange between steps, which may average weights; return whether the next call
        of a model is to be examined: after exchanges 1, 2, 4, 8 …
        """
        if self._exchange_pending or self._weights is None or self.noted.get("sharded"):
            return False
        self._exchanges += 1
        self._exchange_pending = self._exchanges & (self._exchanges - 1) == 0
        self.call_may_show_facts |= self._exchange_pending
        return self._exchange_pending

    def on_epoch(self, loader: Any) -> None:
        """Remember a loader that begins an epoch, if this loader may feed training."""
        with self._optional("loader"):
            dataset_id = id(loader.dataset)
            if self._dataset_id and dataset_id != self._dataset_id:
                return
            sampler: Any = getattr(loader, "sampler", None)
            shuffles = isinstance(sampler, DistributedSampler) and sampler.shuffle
            epoch = sampler.epoch if shuffles else None
            if "epoch_samples" not in self.noted or not self._dataset_id:
                self.noted["epoch_samples"] = _epoch_samples(loader)
            self._loader_epoch = dataset_id, loader.num_workers, epoch
            self.call_may_show_facts = True

    def on_batch(self, tensor: Any) -> None:
        """Remember the first tensor of a loader's batch."""
        if len(self._digests) < COMPARED_BATCHES:
            self._batch, self._has_loader = tensor, True

    def collect_at_end(self) -> dict[str, Any]:
        """Return all facts, and the device, threads and environment that every run records."""
        self._calls.restore()
        if not self.watcher.steps:
            return {}
        with self._optional("end"):
            self._finish()
        with self._optional("weights"):
            if self._weights is not None:
                self.noted["weights"] = self._weights.facts()
        with self._optional("device"):
            self._finish_device()
        values: dict[str, Any] = {
            "facts": self.noted,
            "device": devices.name(self.device),
            "threads": torch.get_num_threads(),
            "backend": self.noted.get("backend"),
        }
        if self.noted.get("rank") == 0:
            with self._optional("environment"):
                values["environment"] = write_environment(self.watcher.folder, devices.facts())
        return values

    @contextmanager
    def _optional(self, fact: str) -> Iterator[None]:
        """Ignore an error in the block: the fact is noted as missing, and watching continues."""
        try:
            yield
        except Exception as problem:
            missing = self.noted.setdefault("missing", [])
            if len(missing) < 10:  # The same error may recur in every step.
                missing.append(f"{fact}: {problem!r}")

    def _note_model(self, model: Any, tensor: Any, inputs: Any) -> None:
        self._weights = WeightSums(model)
        if isinstance(tensor, torch.Tensor) and tensor.dim():
            self._input_rows = tensor.size(0)
        self._is_shifted = is_shifted_by_a_row(inputs)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.noted |= {
            "parameters": sum(parameter.numel() for parameter in trained),
            "dtype": str(trained[0].dtype).removeprefix("torch.") if trained else None,
            "data_parallel": isinstance(model, nn.DataParallel),
            "sharded": is_sharded(model),
            "split": is_model_parallel(model),
            # Sequences of tokens or vectors, but not images.
            "sequence_first": isinstance(tensor, torch.Tensor)
            and tensor.dim() in (2, 3)
            and (
                self._is_shifted
                or any(getattr(module, "batch_first", True) is False for module in model.modules())
            ),
        }

    def _note_batch(self, tensor: Any) -> None:
        """Note a digest of the loader's batch; without a loader, of the model's input."""
        batch, self._batch = self._batch, None
        if batch is None:
            if self._has_loader:  # The call uses no new batch.
                return
            batch = tensor
        self._digests.append(batch_digest(batch))
        if self._has_loader and self.device.type == "cuda" and isinstance(batch, torch.Tensor):
            self.noted["handed"] = {  # The batch as the loader hands it to the program.
                "bytes": batch.numel() * batch.element_size(),
                "pageable": batch.device.type == "cpu" and not batch.is_pinned(),
            }

    def _note_optimizer(self, optimizer: Any) -> None:
        """Note the first optimizer's learning rates; at its first step also rank and backend."""
        group = optimizer.param_groups[0]
        if not self._first_optimizer_id:
            joined = dist.is_available() and dist.is_initialized()
            self.noted["rank"] = self.watcher.rank_and_world()[0]
            self.noted["backend"] = str(dist.get_backend()) if joined else None
            self.noted["optimizer"] = type(optimizer).__name__
            self.noted["by_hand"] = isinstance(optimizer, ManualUpdates)
            self.noted["rate"] = _host_number(group.get("initial_lr", optimizer.defaults.get("lr")))
            self._first_optimizer_id = id(optimizer)
        rate = _host_number(group.get("lr"))
        if id(optimizer) == self._first_optimizer_id and rate is not None:
            # A schedule may warm up, so the first learning rate may not be the highest.
            self.noted["highest_rate"] = max(rate, self.noted.get("highest_rate", rate))

    def _count_waits(self, step: int) -> None:
        if step < WAIT_STEPS[1]:
            self.noted.setdefault("waits", {"from": step})
            self._calls.count_waits()
        elif "waits" in self.noted and "to" not in self.noted["waits"]:
            self.noted["waits"]["to"] = step
            self._calls.restore_waits()

    def _finish(self) -> None:
        # A compiled model, or one of these libraries, may exchange gradients unobserved.
        unobservable = self.compiled or UNSEEN_LIBRARIES & sys.modules.keys()
        self.noted |= {
            "compiled": self.compiled,
            "exchanged": self.exchanged or (None if unobservable else False),
            "samples": self._digests,
            "loads": self._has_loader,
            "emptied": self._calls.emptied_caches,
            # Turned for its layers, the model's input has the batch first.
            "sequence_first": self.noted.get("sequence_first", False)
            and (self._is_shifted or self._time_first_sides != {1}),
            "autocast": self.noted.get("autocast", False) or self._calls.autocast,
        }
        if "waits" in self.noted:
            self.noted["waits"] |= {
                "to": self.noted["waits"].get("to", self.watcher.steps),
                "count": self._calls.waits.total(),
                "where": max(self._calls.waits, key=self._calls.waits.__getitem__, default=None),
            }
        unused_sets = [unused for finds_unused, unused in self._ddp if finds_unused]
        # After fewer steps, a parameter may lack a gradient only by chance.
        if unused_sets and self.watcher.steps >= COMPARED_BATCHES:
            self.noted["searched"] = {"unused": sum(len(unused) for unused in unused_sets)}
        if self._sampler_epochs:  # Fewer of them than loader epochs: set_epoch was not called.
            self.noted["passes"] = {"count": self._epochs, "epochs": len(self._sampler_epochs)}
        # ``which_cores`` is a digest of the core numbers; ranks with equal digests share cores.
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        self.noted["cores"] = usable_cores()
        self.noted["which_cores"] = blake2b(repr(cores).encode(), digest_size=6).hexdigest()

    def _finish_device(self) -> None:
        self.noted["accelerator"] = None
        if self.device.type == "cpu":
            return
        self.noted["accelerator"] = f"{os.environ.get('CUDA_VISIBLE_DEVICES')} {self.device}"
        if self.device.type == "cuda":
            properties = torch.cuda.get_device_properties(self.device)
            self.noted["accelerator"] = str(getattr(properties, "uuid", self.noted["accelerator"]))
            self.noted["capability"] = [properties.major, properties.minor]
            self.noted["matmul"] = torch.get_float32_matmul_precision()
            self.noted["tf32"] = torch.backends.cuda.matmul.allow_tf32


def _epoch_samples(loader: Any) -> int | None:
    """Return the samples of an epoch of this rank's loader; None if it does not know them."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    batch = loader.batch_size or getattr(batch_sampler, "batch_size", None)
    # The length of an iterable dataset is not asked for: PyTorch would warn if it is wrong.
    if not batch or isinstance(loader.dataset, IterableDataset):
        return None
    try:
        return min(len(loader) * int(batch), len(loader.sampler))
    except TypeError:  # A sampler without a length.
        return None


def is_shifted_by_a_row(inputs: Any) -> bool:
    """Return whether two of the tensors are the tokens of a text and the next tokens, with the time
    first.

    >>> text = torch.tensor([[1, 2], [3, 4], [5, 6]])
    >>> is_shifted_by_a_row([text[:-1], text[1:]]), is_shifted_by_a_row([text[:, :-1], text[:, 1:]])
    (True, False)
    """
    tokens = [one for one in find_tensors(inputs) if one.dim() == 2 and not one.is_floating_point()]
    return any(
        len(one) > 1
        and one.shape == other.shape
        and torch.equal(one[1:], other[:-1])
        and not torch.equal(one, other)
        for one, other in pairwise(tokens)
    )


def _host_number(value: Any) -> float | None:
    """Return a number or a CPU tensor as a float; None if reading it would wait for a device."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None
