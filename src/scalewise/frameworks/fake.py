"""A simulated machine, to test analyses against: its step times follow a known law (a formula).

It writes the run folders of a real framework through the same loop; one process plays every rank.
A step of ``n`` samples per rank on N devices, d per node, takes

    host + wait + compute · n · (1 + uneven) + slow
         + ring · 2(m−1)/m + network · 2(k−1)/k + latency · log2 N

seconds, with m = min(N, d) devices in a node and k nodes. The slowest rank decides: with
``uneven`` batches or a ``slow`` rank it is the last one, and the others wait for it in ``sync``.
On a single device ``uneven`` and ``slow`` have no effect. Random factors multiply times: ``noise``
each step and ``drift`` each repeat, equally on all ranks; ``jitter`` a rank's compute in a step.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from scalewise.errors import SpecError, shown
from scalewise.frameworks import Framework, Outline, Quality, Session, too_few_samples
from scalewise.frameworks.fake_power import Meter, write_node
from scalewise.probe import Laps, Probe
from scalewise.spec import Parallelism, RunSpec, Topology
from scalewise.validate import refuse_unknown_keys

DEFAULT_SAMPLES = 65536
"""Samples in the simulated data set unless ``data = "synthetic:SAMPLES"``."""
PHASES = ("input", "forward", "backward", "sync")
PhaseSeconds = tuple[float, float, float, float]
"""Seconds of each phase in one step."""


@dataclass(frozen=True)
class Law:
    """The parameters of the machine's law: seconds, unless a parameter says something else."""

    compute: float = 1e-3
    """Forward and backward of one sample."""
    host: float = 2e-3
    """Work per step that does not depend on the batch."""
    wait: float = 0.0
    """Waiting for input, per step."""
    ring: float = 2e-3
    """Sending all gradients once over the links within a node."""
    network: float = 4e-3
    """Sending all gradients once over the network between nodes."""
    latency: float = 1e-4
    """Latency of the exchange, per doubling of the devices."""
    slow: float = 0.0
    """Additional compute per step on the last of several ranks."""
    uneven: float = 0.0
    """A share: relative batch sizes go from 1 - uneven (first rank) to 1 + uneven (last)."""
    jitter: float = 0.0
    """Standard deviation of log(factor); 0.05 varies a rank's compute by about 5 % per step."""
    launch: float = 4.0
    rendezvous: float = 0.5
    """Multiplied by 1 + log2 of the devices."""
    data: float = 2.0
    build: float = 3.0
    validate: float = 1.0
    """On one device; n devices take 1/n of it."""
    checkpoint: float = 0.0
    """Writing a checkpoint after the training; 0 means no checkpoint."""
    shutdown: float = 0.5
    memory: float = 2e9
    """Bytes on each device."""
    watts: float = 0.0
    """Power of a computing device; 0 means that energy is not recorded."""
    idle_watts: float = 0.0
    """Power of a device that waits for other ranks or input, or before and after training."""
    noise: float = 0.0
    """Standard deviation of log(factor); the factor multiplies the time of one step."""
    drift: float = 0.0
    """Standard deviation of log(factor); the factor multiplies all steps of one repeat."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Law":
        """Return the law of a run's options; refuse unknown ones."""
        names = [field.name for field in fields(cls)]
        refuse_unknown_keys("the fake machine's law", options, names)
        for key, value in options.items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not 0 <= value < math.inf:
                raise SpecError(
                    f"{key} must be a number from 0 up, got {shown(value)}",
                    hint=f"for example {key} = 0.001",
                )
        if options.get("uneven", 0) > 1:
            raise SpecError(
                f"uneven must be a share from 0 to 1, got {shown(options['uneven'])}",
                hint="for example uneven = 0.2",
            )
        return cls(**{key: float(value) for key, value in options.items()})

    def transfer(self, topology: Topology) -> float:
        """Return the seconds that a step spends on exchanging gradients."""
        devices, nodes = topology.devices, topology.nodes
        return (
            self.ring * 2 * (devices - 1) / devices
            + self.network * 2 * (nodes - 1) / nodes
            + self.latency * math.log2(topology.world)
        )

    def rank_samples(self, samples: int, rank: int, world: int) -> int:
        """Return a rank's samples in a step, where ``world`` ranks have ``samples`` on average.

        Rank r and rank world-1-r together have twice the average, so rounding loses no sample.
        """
        mirror = world - 1 - rank
        if not self.uneven or rank == mirror:
            return samples
        if rank > mirror:
            return 2 * samples - self.rank_samples(samples, mirror, world)
        return round(samples * (1 - self.uneven * (1 - 2 * rank / (world - 1))))

    def work_seconds(self, samples: int, rank: int, world: int) -> float:
        """Return the seconds of a rank's own work in a step, without jitter and noise."""
        slow = self.slow if world > 1 and rank == world - 1 else 0.0
        return self.compute * self.rank_samples(samples, rank, world) + self.host + slow

    def step(self, samples: int, topology: Topology) -> float:
        """Return a step's seconds without jitter and noise, for ``samples`` per rank on average."""
        world = topology.world
        return self.wait + self.work_seconds(samples, world - 1, world) + self.transfer(topology)


class SimulatedClock:
    """A clock that only moves when ``time`` is set."""

    simulated = True

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    mark = now

    def passed(self, mark: float) -> bool:
        return True

    def between(self, earlier: Sequence[float], later: Sequence[float]) -> list[float]:
        return [end - start for start, end in zip(earlier, later)]


class Fake(Framework):
    """The simulated framework: one object plays all ranks of a run."""

    def __init__(self) -> None:
        self._noise: list[float] = []  # The factor of each step.
        self._slowest: list[float] = []  # The slowest rank's seconds of work in each step.
        self._laps: list[PhaseSeconds] = []  # The current rank's phases in each step.
        self._meters: list[Meter] = []  # The meters of the current node's devices.

    def check(self, spec: RunSpec) -> None:
        law = Law.of(spec.options)
        if not law.step(spec.global_batch // spec.replicas, spec.topology):
            raise SpecError("with this law a step takes no time", hint="give compute above 0")
        rule, checkpoints = spec.remainder, spec.checkpoint_every or spec.resume
        for field, is_set, limitation in (
            ("parallelism", spec.parallelism != Parallelism(), "splits no model"),
            ("remainder", rule != "drop", f"cannot {rule} a remainder, it only drops it"),
            ("checkpoints", checkpoints, "has no checkpoints"),
            ("device", spec.device, "has one kind of device"),
            ("start", spec.started_by != "direct", "is one process"),
        ):
            if is_set:
                raise SpecError(f"the fake machine {limitation}", hint=f"leave {field} out")
        if _data_size(spec) < spec.replicas:
            raise too_few_samples(_data_size(spec), spec.replicas)

    def ranks(self, spec: RunSpec) -> Sequence[int]:
        return range(spec.topology.world)

    def clock(self, spec: RunSpec) -> SimulatedClock:
        clock = SimulatedClock()
        clock.time = Law.of(spec.options).launch
        return clock

    def facts(self) -> dict[str, Any]:
        return {"name": "fake", "version": None, "device": "simulated"}

    @contextmanager
    def session(self, spec: RunSpec, rank: int, probe: Probe) -> Iterator["FakeSession"]:
        law, clock = Law.of(spec.options), probe.clock
        assert isinstance(clock, SimulatedClock)
        host = f"node-{rank // spec.topology.devices}"
        probe.note(host=host, device="simulated")
        rendezvous = law.rendezvous * (1 + math.log2(spec.topology.world))
        for name, seconds in (("rendezvous", rendezvous), ("data", law.data), ("build", law.build)):
            with probe.span(name):
                clock.time += seconds
        session = FakeSession(spec, law, clock, rank)
        session.meter.read(clock.time)
        self._noise = self._noise or step_noise(spec, law, session.total_steps)
        self._slowest = self._slowest or session.slowest_work()
        if not self._laps or law.slow or law.uneven or law.jitter:  # Else ranks take equal time.
            self._laps = session.laps_of(rank, self._slowest, self._noise)
        session.laps = self._laps
        yield session
        if law.checkpoint:
            with probe.span("checkpoint"):
                clock.time += law.checkpoint
        with probe.span("shutdown"):
            clock.time += law.shutdown
        session.meter.read(clock.time)
        self._meters.append(session.meter)
        if len(self._meters) == spec.topology.devices:  # This is the last rank of a node.
            if law.watts:
                launched = probe.wall() - clock.time
                write_node(probe.folder, host, probe.attempt, launched, self._meters)
            self._meters = []


class FakeSession(Session):
    """One simulated rank."""

    def __init__(self, spec: RunSpec, law: Law, clock: SimulatedClock, rank: int) -> None:
        self._law, self._clock, self._id = law, clock, spec.id
        self._world = spec.topology.world
        self._transfer = law.transfer(spec.topology)
        size = _data_size(spec)
        self._batch = min(spec.global_batch, size) // spec.replicas
        self._samples = law.rank_samples(self._batch, rank, self._world)
        steps = spec.total_steps or max(1, size // spec.global_batch)
        seen = steps * self._samples
        self.outline = Outline(epochs=spec.epochs, steps=steps, samples=size, seen=seen)
        self.total_steps = steps * (spec.epochs or 1)
        self.laps: list[PhaseSeconds] = []
        """The seconds that this rank spends in each phase of each step."""
        self.meter = Meter(law.watts, law.idle_watts)
        self._computed_seconds = 0.0  # Since the meter was last read.
        self._steps_done = 0

    def work_by_step(self, rank: int) -> list[float]:
        """Return the seconds of a rank's own work in each step, before noise."""
        law = self._law
        seconds = law.work_seconds(self._batch, rank, self._world)
        compute = law.compute * law.rank_samples(self._batch, rank, self._world)
        rng = random.Random(f"{self._id} rank {rank}")
        factors = _lognormal_factors(law.jitter, self.total_steps, rng)
        return [seconds + compute * (factor - 1) for factor in factors]

    def slowest_work(self) -> list[float]:
        """Return the seconds of the slowest rank's own work in each step, before noise."""
        if not self._law.jitter:
            return self.work_by_step(self._world - 1)
        longest = self.work_by_step(0)
        for rank in range(1, self._world):
            longest = list(map(max, longest, self.work_by_step(rank)))
        return longest

    def laps_of(self, rank: int, slowest: list[float], noises: list[float]) -> list[PhaseSeconds]:
        """Return a rank's seconds by step and phase; ``sync`` includes waiting for the slowest."""
        wait, transfer = self._law.wait, self._transfer
        return [  # Backward takes twice as long as forward.
            (wait * noise, own * noise / 3, own * noise * 2 / 3, (transfer + longest - own) * noise)
            for own, longest, noise in zip(self.work_by_step(rank), slowest, noises)
        ]

    def begin(self, epoch: int) -> None:
        """Read the meter; there are no data to shuffle."""
        self.meter.read(self._clock.time)

    def step(self, probe: Laps) -> int:
        laps = self.laps[self._steps_done]
        self._steps_done += 1
        self._computed_seconds += laps[1] + laps[2]
        for phase, seconds in zip(PHASES, laps):
            self._clock.time += seconds
            probe.lap(phase)
        return self._samples

    def settle(self) -> None:
        """Read the meter; there is no device to wait for."""
        self.meter.read(self._clock.time, self._computed_seconds)
        self._computed_seconds = 0.0

    def losses(self) -> list[float]:
        return []

    def validate(self) -> Quality | None:
        self._clock.time += self._law.validate / self._world
        return None

    def memory(self) -> int:
        return int(self._law.memory)

    def save(self, path: Path) -> None:
        """Do nothing: a simulated machine has no weights."""


def _data_size(spec: RunSpec) -> int:
    if spec.data is None:
        return DEFAULT_SAMPLES
    kind, _, samples = spec.data.partition(":")
    if kind != "synthetic" or not samples.isdecimal():
        hint = 'write data = "synthetic:65536"'
        raise SpecError(f"the fake machine cannot read data {shown(spec.data)}", hint=hint)
    return int(samples)


def step_noise(spec: RunSpec, law: Law, steps: int) -> list[float]:
    """Return a factor for every step: its noise (mean 1) times this repeat's drift (median 1)."""
    rng = random.Random(spec.id)
    drift = math.exp(law.drift * rng.gauss(0, 1))
    return [drift * factor for factor in _lognormal_factors(law.noise, steps, rng)]


def _lognormal_factors(deviation: float, count: int, rng: random.Random) -> list[float]:
    """Return lognormal factors of mean 1, with the standard deviation of their logarithms."""
    if not deviation:
        return [1.0] * count
    shift = -(deviation**2) / 2  # Makes the mean of the factors 1.
    return [math.exp(shift + deviation * rng.gauss(0, 1)) for _ in range(count)]
