"""Training by one process with JAX: devices, data, the compiled step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scalewise import plugins
from scalewise.frameworks import Outline, Quality, Session
from scalewise.frameworks.data_source import in_memory_source
from scalewise.frameworks.in_memory_data import Arrays, read
from scalewise.frameworks.jax import device
from scalewise.frameworks.jax.clock import ReadyClock
from scalewise.frameworks.jax.loader import Batch, training_loader, validation_loader
from scalewise.frameworks.jax.sharded import Layout, parallelize
from scalewise.frameworks.jax.train_step import State, initial_state, make_eval, make_train_step
from scalewise.frameworks.lr_schedule import Rates
from scalewise.frameworks.part_options import build_model
from scalewise.frameworks.sampler import Shards, count_steps, samples_by_step, samples_in_steps
from scalewise.frameworks.train_log import say
from scalewise.probe import Laps, Probe
from scalewise.spec import RunSpec

MAX_STEPS_AHEAD = 2
"""Steps that the host may be ahead of its devices: enough to keep them busy."""
FETCH_LOSSES = 1000
"""Losses that are copied from the device at once."""


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator["JaxSession"]:
    """Set up the training, record its spans, and shut it down at the end."""
    with probe.span("rendezvous"):
        device.initialize(spec)
        devices = device.find_devices(spec)
    kind = devices[0].device_kind
    probe.note(device=kind, threads=spec.threads)
    if rank == 0:
        say(f"devices        {len(devices)} x {kind}, {len(devices) // spec.ranks} per process")
        say("compiled       the whole step is one program; the field compile has no effect")
    with probe.span("data"):
        data = read(in_memory_source(spec))
    clock = ReadyClock()
    with probe.span("build"):
        training = JaxSession(spec, data, devices, clock)
    with probe.span("compile"):
        training.compile()
    probe.use(clock)
    yield training
    with probe.span("shutdown"):
        clock.close()
        if spec.ranks > 1:
            jax.distributed.shutdown()


class JaxSession(Session):
    """Steps of one process, on all devices that it has."""

    def __init__(
        self, spec: RunSpec, data: Arrays, devices: Sequence[Any], clock: ReadyClock
    ) -> None:
        self._spec, self._data, self._clock = spec, data, clock
        self._layout: Layout = parallelize(devices)
        process = jax.process_index()
        self._replicas = [n for n, dev in enumerate(devices) if dev.process_index == process]
        self._devices = [devices[n] for n in self._replicas]
        self._shards = [Shards(len(data.train), spec, replica) for replica in self._replicas]
        self._batches: Iterator[Batch] = iter(())
        self._step_samples = samples_by_step(self._shards)
        """This process's samples in each step of an epoch."""
        steps = count_steps(spec, len(data.train))
        self._rates = Rates.of(spec, self._shards[0].steps, steps * (spec.epochs or 1))
        workload = plugins.load("workloads", str(spec.workload), framework="jax")
        model = build_model(workload, spec, data.shape, data.classes)
        weights = model.init(np.random.default_rng(spec.seed + spec.repeat))
        self._state: State = self._layout.replicate(initial_state(spec, weights))
        replicated = self._layout.replicated
        self._train_step = jax.jit(
            make_train_step(spec, model, data.transform),
            donate_argnums=0,
            out_shardings=(replicated, replicated),
        )
        self._eval_step = jax.jit(make_eval(spec, model, data.transform), out_shardings=replicated)
        self._rate = self._layout.replicate(np.float32(self._rates.at(0)))
        self._device_losses: list[Any] = []
        """The latest losses, which are still on the device."""
        self._host_losses: list[float] = []
        self._step, self._steps_done = 0, 0
        """Steps since ``begin``, and in total."""
        self.outline = Outline(
            epochs=spec.epochs,
            steps=steps,
            samples=len(data.train),
            seen=samples_in_steps(steps, self._step_samples),
            parameters=sum(weight.size for weight in weights.values()),
            uncounted="XLA compiles the step to one program",
            validation=len(data.validation),
            rates=str(self._rates),
        )

    def compile(self) -> None:
        """Compile the training and validation steps for the shapes of their batches."""
        self.begin(0)  # Only to get a batch: the loop calls it again when the training starts.
        batch = next(self._batches)
        lowered = self._train_step.lower(self._state, *self._shard(batch), self._rate)
        self._train_step = lowered.compile()
        batch = next(validation_loader(self._data.validation, self._spec, self._replicas))
        sums = self._layout.replicate(np.zeros(3, np.float32))
        lowered = self._eval_step.lower(sums, self._state.weights, *self._shard(batch))
        self._eval_step = lowered.compile()

    def begin(self, epoch: int) -> None:
        self._device_losses, self._host_losses, self._step = [], [], 0
        self._batches = training_loader(self._data.train, self._spec, self._shards, epoch)

    def _shard(self, batch: Sequence[Any]) -> list[Any]:
        return [self._layout.shard(array) for array in batch]

    def step(self, probe: Laps) -> int:
        """Do one optimizer step on all devices of this process; return their samples.

        Lap ``input`` ends when the devices have the batch, lap ``step`` when they have finished.
        """
        if not self._rates.constant:
            self._rate = self._layout.replicate(np.float32(self._rates.at(self._steps_done)))
        images, labels = self._shard(next(self._batches))
        self._clock.set_array(images)
        probe.lap("input")
        self._state, loss = self._train_step(self._state, images, labels, self._rate)
        self._clock.set_array(loss)
        probe.lap("step")
        self._steps_done += 1
        self._device_losses.append(loss)
        if len(self._device_losses) > MAX_STEPS_AHEAD:
            self._device_losses[-1 - MAX_STEPS_AHEAD].block_until_ready()
        if len(self._device_losses) == FETCH_LOSSES + MAX_STEPS_AHEAD:
            self._fetch_losses(FETCH_LOSSES)
        self._step += 1
        return self._step_samples[(self._step - 1) % len(self._step_samples)]

    def settle(self) -> None:
        if self._device_losses:
            self._device_losses[-1].block_until_ready()
        self._clock.settle()

    def _fetch_losses(self, count: int) -> None:
        """Move the first ``count`` losses from the device to the host."""
        first, self._device_losses = self._device_losses[:count], self._device_losses[count:]
        self._host_losses += [round(float(loss), 9) for loss in jax.device_get(first)]

    def losses(self) -> list[float]:
        self._fetch_losses(len(self._device_losses))
        return self._host_losses

    def validate(self) -> Quality | None:
        sums = self._layout.replicate(np.zeros(3, np.float32))
        for batch in validation_loader(self._data.validation, self._spec, self._replicas):
            sums = self._eval_step(sums, self._state.weights, *self._shard(batch))
        correct, loss, samples = jax.device_get(sums).tolist()
        return Quality(accuracy=correct / samples, loss=loss / samples, samples=int(samples))

    def memory(self) -> int | None:
        return device.peak_memory(self._devices)

    def save(self, path: Path) -> None:
        """Write the weights as a numpy archive (``.npz``), by process 0 only."""
        if jax.process_index() == 0:
            draft = path.with_suffix(".part")
            with draft.open("wb") as file:
                np.savez(file, **jax.device_get(dict(self._state.weights)))
            draft.replace(path.with_suffix(".npz"))
