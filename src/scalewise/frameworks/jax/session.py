"""A training by one process: devices, data, the compiled step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scalewise.frameworks import Outline, Quality, Session
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.in_memory_data import Arrays, read
from scalewise.frameworks.jax import build, device
from scalewise.frameworks.jax.clock import ReadyClock
from scalewise.frameworks.jax.loader import Feed, validation
from scalewise.frameworks.jax.sharded import Layout, parallelize
from scalewise.frameworks.jax.train_step import State, begin, one_step, score
from scalewise.frameworks.loop import say
from scalewise.frameworks.lr_schedule import Rates
from scalewise.frameworks.sampler import in_steps, steps_of
from scalewise.probe import Laps, Probe
from scalewise.spec import RunSpec

AHEAD = 2
"""Steps that the host may be ahead of its devices: enough to keep them busy."""
FETCHED = 1000
"""Losses that are fetched at once, when they have long been there."""


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator["JaxSession"]:
    """Set up a training, its spans told to the probe, and take it down again."""
    with probe.span("rendezvous"):
        device.meet(spec)
        devices = device.find(spec)
    kind = device.name(devices[0])
    probe.note(device=kind, threads=spec.threads)
    if rank == 0:
        say(f"devices        {len(devices)} x {kind}, {len(devices) // spec.ranks} per process")
        say("compiled       the whole step is one program, whatever compile says")
    with probe.span("data"):
        data = read(Source.of_run(spec))
    clock = ReadyClock()
    with probe.span("build"):
        training = JaxSession(spec, data, devices, clock)
    with probe.span("compile"):
        training.compile()
    probe.use(clock)
    yield training
    with probe.span("shutdown"):
        clock.close()
        device.leave(spec)


class JaxSession(Session):
    """Steps of one process, on all devices that it has."""

    def __init__(
        self, spec: RunSpec, data: Arrays, devices: Sequence[Any], clock: ReadyClock
    ) -> None:
        self._spec, self._data, self._clock = spec, data, clock
        self._layout: Layout = parallelize(devices)
        me = jax.process_index()
        self._mine = [n for n, each in enumerate(devices) if each.process_index == me]
        self._devices = [devices[n] for n in self._mine]
        self._feed = Feed(data.train, spec, self._mine)
        steps = steps_of(spec, len(data.train))
        self._rates = Rates.of(spec, self._feed.steps, steps * (spec.epochs or 1))
        model = build(spec, data.shape, data.classes)
        weights = model.begin(np.random.default_rng(spec.seed + spec.repeat))
        self._state: State = self._layout.copied(begin(spec, weights))
        alike = self._layout.alike
        self._step = jax.jit(
            one_step(spec, model, data.transform),
            donate_argnums=0,
            out_shardings=(alike, alike),
        )
        self._score = jax.jit(score(spec, model, data.transform), out_shardings=alike)
        self._rate = self._layout.copied(np.float32(self._rates.at(0)))
        self._losses: list[Any] = []
        self._fetched: list[float] = []
        self._taken = 0
        self.outline = Outline(
            epochs=spec.epochs,
            steps=steps,
            samples=len(data.train),
            seen=in_steps(steps, self._feed.samples),
            parameters=sum(each.size for each in weights.values()),
            uncounted="the step is one program of XLA's",
            validation=len(data.validation),
            rates=str(self._rates),
        )

    def compile(self) -> None:
        """Compile the step and the validation for the shapes that they will see."""
        self._feed.begin(0)  # The pass begins anew when training does.
        batch, _ = self._fed()
        self._step = self._step.lower(self._state, *batch, self._rate).compile()
        checked = self._spread(next(validation(self._data.validation, self._spec, self._mine)))
        sums = self._layout.copied(np.zeros(3, np.float32))
        self._score = self._score.lower(sums, self._state.weights, *checked).compile()

    def begin(self, epoch: int) -> None:
        """Start a pass over the data in a new order."""
        self._losses, self._fetched = [], []
        self._feed.begin(epoch)

    def _fed(self) -> tuple[list[Any], int]:
        batch, samples = self._feed.take()
        return self._spread(batch), samples

    def _spread(self, batch: Sequence[Any]) -> list[Any]:
        return [self._layout.spread(each) for each in batch]

    def step(self, probe: Laps) -> int:
        """Do one optimizer step on all devices of this process; return their samples.

        The laps end when the devices have the batch, and when they have done the step.
        """
        if not self._rates.constant:
            self._rate = self._layout.copied(np.float32(self._rates.at(self._taken)))
        (images, labels), samples = self._fed()
        self._clock.about(images)
        probe.lap("input")
        self._state, loss = self._step(self._state, images, labels, self._rate)
        self._clock.about(loss)
        probe.lap("step")
        self._taken += 1
        self._losses.append(loss)
        if len(self._losses) > AHEAD:
            self._losses[-1 - AHEAD].block_until_ready()
        if len(self._losses) == FETCHED + AHEAD:
            self._fetch(FETCHED)
        return samples

    def settle(self) -> None:
        """Wait until the devices have done what they were asked."""
        if self._losses:
            self._losses[-1].block_until_ready()
        self._clock.settle()

    def _fetch(self, count: int) -> None:
        """Bring losses from the device, many at once."""
        some, self._losses = self._losses[:count], self._losses[count:]
        self._fetched += [round(float(each), 9) for each in jax.device_get(some)]

    def losses(self) -> list[float]:
        """Return the loss of each step since ``begin``: every process sees that of all."""
        self._fetch(len(self._losses))
        return self._fetched

    def validate(self) -> Quality | None:
        """Return the quality now, each validation sample counted once."""
        sums = self._layout.copied(np.zeros(3, np.float32))
        for batch in validation(self._data.validation, self._spec, self._mine):
            sums = self._score(sums, self._state.weights, *self._spread(batch))
        right, loss, samples = jax.device_get(sums).tolist()
        return Quality(accuracy=right / samples, loss=loss / samples, samples=int(samples))

    def memory(self) -> int | None:
        """Return the peak bytes of this process's fullest device."""
        return device.peak_memory(self._devices)

    def weights(self) -> dict[str, Any]:
        """Return the weights, under the names that the same model has in PyTorch."""
        return dict(self._state.weights)

    def save(self, path: Path) -> None:
        """Write the weights once, as arrays of numpy's."""
        if jax.process_index() == 0:
            draft = path.with_suffix(".part")
            with draft.open("wb") as file:
                np.savez(file, **jax.device_get(self.weights()))
            draft.replace(path.with_suffix(".npz"))
