"""A training on one rank: process group, data, model, steps."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, Sampler

from scalewise import plugins
from scalewise.errors import ScalewiseError, SpecError
from scalewise.frameworks import Outline, Quality
from scalewise.frameworks.torch import device as devices
from scalewise.frameworks.torch import options_for
from scalewise.frameworks.torch.data import Data, Images, Shards, load
from scalewise.frameworks.torch.source import Source
from scalewise.frameworks.torch.task import Parallel, Task, optimizer
from scalewise.probe import Laps, Probe, Unwatched
from scalewise.spec import RunSpec

STACK = 1000
"""Losses kept one by one, on the device, before they are put together."""


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator["TorchSession"]:
    """Set up a training, its spans told to the probe, and take it down again."""
    device = devices.bind(spec)
    backend = devices.backend(spec, device)
    probe.note(device=devices.name(device), backend=backend, threads=torch.get_num_threads())
    with probe.span("rendezvous"):
        dist.init_process_group(backend)
        dist.barrier()
    with probe.span("data"):
        data = _in_turn(lambda: load(Source.of(spec.data)))
    with probe.span("build"):
        torch.manual_seed(spec.seed + spec.repeat)
        model = _model(spec, data).to(device)
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        learner: Any = torch.compile(model) if spec.compile else model
        task = Task(learner, optimizer(spec), spec.precision)
        strategy = plugins.load("strategies", spec.strategy, framework="torch")
        parallel = strategy(task, mesh, spec, **options_for(strategy, spec))
        # From here on chance (dropout) is each rank's own.
        torch.manual_seed((spec.seed + spec.repeat << 20) + rank)
    if spec.compile:
        with probe.span("compile"):
            _compile(parallel, data.train, spec, device)
    if device.type != "cpu":
        probe.use(devices.EventClock(device))
    yield TorchSession(spec, data, replace(task, model=model), parallel, device)
    with probe.span("shutdown"):
        dist.barrier()
        dist.destroy_process_group()


def _in_turn(prepare: Callable[[], Data]) -> Data:
    """Let one rank prepare the data while the others wait; then they read it too."""
    first = int(os.environ.get("LOCAL_RANK", "0")) == 0
    data = prepare() if first else None
    dist.barrier()
    return data or prepare()


def _model(spec: RunSpec, data: Data) -> nn.Module:
    factory = plugins.load("workloads", str(spec.workload), framework="torch")
    try:
        model: nn.Module = factory(data.shape, data.classes, **options_for(factory, spec))
    except ScalewiseError:
        raise
    except (TypeError, ValueError, RuntimeError) as bad:
        raise SpecError(
            f"{spec.workload} cannot be built for images of {data.shape} "
            f"with options {dict(spec.options)}: {bad}"
        ) from bad
    return model


def _compile(parallel: Parallel, images: Images, spec: RunSpec, device: torch.device) -> None:
    """Compile forward and backward on one batch that teaches nothing."""
    assert spec.batch is not None
    batch = [part.to(device) for part in images[torch.arange(spec.batch) % len(images)]]
    with torch.random.fork_rng():
        parallel.forward_backward(batch[0], batch[1], 1.0, Unwatched(), sync=True)
    parallel.optimizer.zero_grad()


class TorchSession:
    """Steps on one rank."""

    def __init__(
        self, spec: RunSpec, data: Data, task: Task, parallel: Parallel, device: torch.device
    ) -> None:
        self._task, self._model, self._parallel = task, task.model, parallel
        self._device = device
        replica, replicas = dist.get_rank(), dist.get_world_size()
        self._shards = Shards(len(data.train), spec, replica)
        self._loader = _loader(data.train, self._shards, spec, device)
        assert spec.batch is not None
        mine = torch.arange(replica, len(data.validation), replicas)
        self._checks = _loader(
            data.validation,
            [part for part in torch.split(mine, spec.batch) if len(part)],
            spec,
            device,
        )
        self._batches: Iterator[list[Tensor]] = iter(())
        self._epoch, self._step = 0, 0
        self._losses: list[Tensor] = []
        self._stacked: list[Tensor] = []
        shards = self._shards
        self._plan = [(sum(shards.counts(n)), shards.weights(n)) for n in range(shards.steps)]
        """Samples and weights of each step of an epoch."""
        steps = _steps(spec, len(data.train))
        self.outline = Outline(
            epochs=spec.epochs,
            steps=steps,
            samples=len(data.train),
            seen=sum(self._plan[n % shards.steps][0] for n in range(steps)),
            parameters=sum(each.numel() for each in task.model.parameters()),
            validation=len(data.validation),
        )

    def begin(self, epoch: int) -> None:
        """Start a pass over the data in a new order."""
        self._losses, self._stacked = [], []
        self._model.train()
        self._pass(epoch)

    def _pass(self, epoch: int) -> None:
        self._epoch, self._step = epoch, 0
        self._shards.set_epoch(epoch)
        self._batches = iter(self._loader)

    def step(self, probe: Laps) -> int:
        """Do one optimizer step, a lap per phase; return this rank's samples."""
        if self._step == len(self._plan):
            self._pass(self._epoch + 1)
        samples, weights = self._plan[self._step]
        parallel, last = self._parallel, len(weights) - 1
        total: Tensor | None = None
        for micro, weight in enumerate(weights):
            images, labels = self._fetch(self._batches)
            probe.lap("input")
            loss = parallel.forward_backward(images, labels, weight, probe, sync=micro == last)
            total = loss if total is None else total + loss
        parallel.optimizer.step()
        parallel.optimizer.zero_grad()
        probe.lap("optimizer")
        assert total is not None
        self._losses.append(total)
        if len(self._losses) == STACK:
            self._stack()
        self._step += 1
        return samples

    def _stack(self) -> None:
        """Put the single losses into one tensor: a million small ones would fill the memory."""
        self._stacked.append(torch.stack(self._losses).float())
        self._losses = []

    def _fetch(self, batches: Iterator[list[Tensor]]) -> list[Tensor]:
        batch = next(batches)
        if self._device.type == "cpu":
            return batch
        return [part.to(self._device, non_blocking=True) for part in batch]

    def settle(self) -> None:
        """Wait until the device has done what it was asked."""
        devices.settle(self._device)

    def losses(self) -> list[float]:
        """Return the loss of each step since ``begin``, averaged over all ranks."""
        if self._losses:
            self._stack()
        mine = torch.cat(self._stacked)
        dist.all_reduce(mine)
        return [round(loss, 9) for loss in (mine / dist.get_world_size()).tolist()]

    @torch.no_grad()
    def validate(self) -> Quality | None:
        """Return the quality now, each validation sample counted once."""
        self._model.eval()
        sums = torch.zeros(3, dtype=torch.float64, device=self._device)
        batches = iter(self._checks)
        for _ in range(len(self._checks)):
            images, labels = self._fetch(batches)
            output, loss = self._task.forward(self._model, images, labels)
            right = (output.argmax(1) == labels).sum()
            total = loss.double() * len(labels)
            sums += torch.stack([right.double(), total, sums.new_tensor(len(labels))])
        dist.all_reduce(sums)
        right, loss, count = sums.tolist()
        return Quality(accuracy=right / count, loss=loss / count, samples=int(count))

    def memory(self) -> int:
        """Return the peak bytes this rank has held."""
        return devices.peak_memory(self._device)

    def save(self, path: Path) -> None:
        """Write the weights once, under the serial model's own names."""
        if dist.get_rank() == 0:
            draft = path.with_suffix(".part")
            torch.save(self._model.state_dict(), draft)
            os.replace(draft, path)
        dist.barrier()


def _steps(spec: RunSpec, size: int) -> int:
    """Return the optimizer steps of an epoch, or in total; the same on every rank."""
    least = Shards(size, spec, spec.replicas - 1)  # Nobody has fewer samples in a ragged step.
    if spec.samples is None:
        return spec.steps or least.steps
    passes, left = divmod(spec.samples, least.seen)
    step = 0
    while left > 0:
        left -= sum(least.counts(step))
        step += 1
    return passes * least.steps + step


def _loader(
    images: Images, sampler: Sampler[Tensor] | list[Tensor], spec: RunSpec, device: torch.device
) -> DataLoader[tuple[Tensor, Tensor]]:
    """Load whole batches: the sampler gives their indices."""
    return DataLoader(
        images,
        batch_size=None,
        sampler=sampler,
        num_workers=spec.workers,
        persistent_workers=spec.workers > 0,
        pin_memory=device.type == "cuda",
    )
