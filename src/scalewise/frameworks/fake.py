"""A simulated machine, to test analyses against: its step times follow a known law (a formula).

It writes the run folders of a real framework through the same loop; one process plays every rank.
A step of ``n`` samples per rank on N devices, d per node, takes

    host + wait + compute · n · (1 + uneven) + slow
         + ring · 2(m−1)/m + network · 2(k−1)/k + latency · log2 N

seconds, with m = min(N, d) devices in a node and k nodes. The slowest rank decides: with
``uneven`` batches or a ``slow`` rank it is the last one, and the others wait for it in ``sync``.
On a single device ``uneven`` and ``slow`` have no effect. Random factors multiply times: ``noise``
each step and ``drift`` each repeat, equally on all ranks; ``jitter`` a rank's compute in a step.
What goes wrong beside that is said by ``faults``, see ``fake_faults``.

With another ``start`` than direct, each rank is a process of its own, and takes its time really.
"""

import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from scalewise.errors import SpecError, shown
from scalewise.frameworks import (
    Framework,
    Outline,
    Quality,
    RankEnded,
    Session,
    too_few_samples,
)
from scalewise.frameworks.fake_exchange import Exchange
from scalewise.frameworks.fake_faults import Fault, Faults
from scalewise.frameworks.fake_power import Meter, write_node
from scalewise.probe import HostClock, Laps, Probe
from scalewise.record import checkpoints
from scalewise.record.checkpoints import Progress
from scalewise.spec import Parallelism, RunSpec, Topology
from scalewise.validate import refuse_unknown_keys

DEFAULT_SAMPLES = 65536
"""Samples in the simulated data set unless ``data = "synthetic:SAMPLES"``."""
PHASES = ("input", "forward", "backward", "sync")
STARTS = ("direct", "plain", "torchrun", "srun", "mpirun")
LOSS = 1.0
"""The loss of each step, where a run has losses: with the fault ``nan loss``."""
HANG_SECONDS = 3600.0
"""How long simulated ranks have waited for one that hangs, unless they end themselves earlier."""
KILLED = 128 + signal.SIGKILL
"""The exit code of a process some rank of which was lost."""
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
        refuse_unknown_keys("the fake machine's law", options, [*names, "faults"])
        options = {key: value for key, value in options.items() if key != "faults"}
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
    """A clock that only moves when it is told to."""

    simulated = True

    def __init__(self) -> None:
        self.time = 0.0
        self.ends_at = math.inf
        """When an interruption ends the rank, by raising ``ending``."""
        self.ending: RankEnded | None = None

    def now(self) -> float:
        return self.time

    mark = now

    def passed(self, mark: float) -> bool:
        return True

    def between(self, earlier: Sequence[float], later: Sequence[float]) -> list[float]:
        return [end - start for start, end in zip(earlier, later)]

    def advance(self, seconds: float) -> None:
        """Let time pass, at most until the interruption."""
        self.time += seconds
        if self.ending and self.time > self.ends_at:
            self.time = max(self.time - seconds, self.ends_at)
            raise self.ending


class RealClock(HostClock):
    """The host's clock, for ranks that are processes."""

    advance = staticmethod(time.sleep)


class Fake(Framework):
    """The simulated framework: one object plays all ranks of a run, or the one of its process."""

    def __init__(self) -> None:
        self._noise: list[float] = []  # The factor of each step.
        self._slowest: list[float] = []  # When the slowest rank begins the exchange of each step.
        self._laps: list[PhaseSeconds] = []  # The phases of a rank without faults of its own.
        self._meters: list[Meter] = []  # The meters of the current node's devices.
        self._resumed: int | None = None  # The step of the checkpoint from which ranks resume.
        self._waits = False  # Whether the ranks wait for one that hangs.

    def check(self, spec: RunSpec) -> None:
        law = Law.of(spec.options)
        faults = Faults(spec.options.get("faults", ()), spec.topology.world)
        if not law.step(spec.global_batch // spec.replicas, spec.topology):
            raise SpecError("with this law a step takes no time", hint="give compute above 0")
        rule, start = spec.remainder, spec.started_by
        for field, is_set, limitation in (
            ("parallelism", spec.parallelism != Parallelism(), "splits no model"),
            ("remainder", rule != "drop", f"cannot {rule} a remainder, it only drops it"),
            ("resume", spec.resume, "cannot resume another run"),
            ("device", spec.device, "has one kind of device"),
            ("start", start not in STARTS, f"cannot be started by {start}"),
            ("start", start != "direct" and faults.interrupts, "interrupts only simulated ranks"),
        ):
            if is_set:
                raise SpecError(f"the fake machine {limitation}", hint=f"leave {field} out")
        if _data_size(spec) < spec.replicas:
            raise too_few_samples(_data_size(spec), spec.replicas)

    def ranks(self, spec: RunSpec) -> Iterable[int]:
        if spec.started_by != "direct":
            return super().ranks(spec)
        return self._simulated_ranks(spec.topology.world)

    def _simulated_ranks(self, world: int) -> Iterator[int]:
        yield from range(world)
        while self._waits:  # As long as a launcher has patience.
            time.sleep(1.0)

    def clock(self, spec: RunSpec) -> SimulatedClock | RealClock:
        if spec.started_by != "direct":
            return RealClock()
        clock = SimulatedClock()
        clock.time = Law.of(spec.options).launch
        return clock

    def facts(self) -> dict[str, Any]:
        return {"name": "fake", "version": None, "device": "simulated"}

    @contextmanager
    def session(self, spec: RunSpec, rank: int, probe: Probe) -> Iterator["FakeSession"]:
        world, law, clock = spec.topology.world, Law.of(spec.options), probe.clock
        assert isinstance(clock, (SimulatedClock, RealClock))
        faults = Faults(spec.options.get("faults", ()), world)
        host = f"node-{rank // spec.topology.devices}"
        probe.note(device="simulated", **({"host": host} if clock.simulated else {}))
        if isinstance(clock, SimulatedClock) and faults.interrupts:
            interruption = faults.interruption(spec.id, probe.attempt)
            clock.ends_at = interruption.seconds
            clock.ending = _lost() if rank == interruption.rank else _terminated()
        with probe.span("rendezvous"):
            exchange = None if clock.simulated else Exchange(rank, world)
            clock.advance(law.rendezvous * (1 + math.log2(world)))
        for name, seconds in (("data", law.data), ("build", law.build)):
            with probe.span(name):
                clock.advance(seconds)
        session = FakeSession(self, spec, faults, rank, probe, exchange)
        session.meter.read(clock.now())
        session.laps = self._laps_of(session, spec, is_slow=faults.is_slow(rank))
        yield session
        if law.checkpoint and not spec.checkpoint_every:
            with probe.span("checkpoint"):
                session.write_checkpoint()
        with probe.span("shutdown"):
            clock.advance(law.shutdown)
        if exchange:
            exchange.close()
        session.meter.read(clock.now())
        self._meters.append(session.meter)
        if len(self._meters) == spec.topology.devices:  # This is the last rank of a node.
            if law.watts and clock.simulated:
                launched = probe.wall() - clock.now()
                write_node(probe.folder, host, probe.attempt, launched, self._meters)
            self._meters = []

    def _laps_of(
        self, session: "FakeSession", spec: RunSpec, *, is_slow: bool
    ) -> list[PhaseSeconds]:
        """Return the phases of a rank's steps, which it shares with all ranks like it."""
        law = Law.of(spec.options)
        self._noise = self._noise or step_noise(spec, law, session.total_steps)
        self._slowest = self._slowest or session.slowest_ready()
        if law.slow or law.uneven or law.jitter or is_slow:
            return session.laps_of(session.rank, self._slowest, self._noise)
        self._laps = self._laps or session.laps_of(session.rank, self._slowest, self._noise)
        return self._laps

    def resumed_step(self, folder: Path) -> int:
        """Return the step of the newest checkpoint that an earlier attempt left; 0 without one."""
        if self._resumed is None:  # Rank 0 writes new ones before the next rank is played.
            written = [path for path in folder.glob("step-*") if checkpoints.is_checkpoint(path)]
            steps = [step for path in written if (step := checkpoints.step_of(path)) is not None]
            self._resumed = max(steps, default=0)
        return self._resumed

    def wait_for_hanging_rank(self) -> RankEnded:
        """Return the end of a rank that hangs or waits for one; real time passes after the last."""
        patience = os.environ.get("SCALEWISE_PATIENCE")
        if patience is None:
            self._waits = True
            return RankEnded(0)
        reason = f"no progress for {float(patience):.0f} s (stacks are in the log)"
        return RankEnded(1, reason, "stalled")


def _lost() -> RankEnded:
    return RankEnded(KILLED)


def _terminated() -> RankEnded:
    return RankEnded(0, "ended by SIGTERM", "terminated")


class FakeSession(Session):
    """One simulated rank."""

    def __init__(
        self,
        machine: Fake,
        spec: RunSpec,
        faults: Faults,
        rank: int,
        probe: Probe,
        exchange: Exchange | None,
    ) -> None:
        law = Law.of(spec.options)
        assert isinstance(probe.clock, (SimulatedClock, RealClock))
        self._machine, self._spec, self._law, self._faults = machine, spec, law, faults
        self.rank, self._probe, self._clock, self._exchange = rank, probe, probe.clock, exchange
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
        self._losses_from = 0  # The first step whose loss was not asked for.
        self._stop = faults.stop(probe.attempt, 0)

    def work_by_step(self, rank: int) -> list[float]:
        """Return the seconds of a rank's own work in each step, before noise."""
        law, faults = self._law, self._faults
        work = [law.work_seconds(self._batch, rank, self._world)] * self.total_steps
        if law.jitter:
            compute = law.compute * law.rank_samples(self._batch, rank, self._world)
            rng = random.Random(f"{self._spec.id} rank {rank}")
            factors = _lognormal_factors(law.jitter, self.total_steps, rng)
            work = [own + compute * (factor - 1) for own, factor in zip(work, factors)]
        if faults.is_slow(rank):
            work = [own * faults.work_factor(rank, step) for step, own in enumerate(work)]
        return work

    def input_by_step(self, rank: int) -> list[float]:
        """Return the seconds that a rank waits for the batch of each step, before noise."""
        more_input = self._faults.more_input
        return [self._law.wait + more_input(rank, step) for step in range(self.total_steps)]

    def slowest_ready(self) -> list[float]:
        """Return when the slowest rank has done its own work in each step, before noise."""
        law, last = self._law, self._world - 1
        some = {0, last, *self._faults.slow_ranks()}  # Of the others none is slower than the last.
        longest = [0.0] * self.total_steps
        for rank in range(self._world) if law.jitter else some:
            ready = map(sum, zip(self.input_by_step(rank), self.work_by_step(rank)))
            longest = list(map(max, longest, ready))
        return longest

    def laps_of(self, rank: int, slowest: list[float], noises: list[float]) -> list[PhaseSeconds]:
        """Return a rank's seconds by step and phase; ``sync`` includes waiting for the slowest."""
        rows = zip(self.input_by_step(rank), self.work_by_step(rank), slowest, noises)
        return [  # Backward takes twice as long as forward.
            (
                wait * noise,
                own * noise / 3,
                own * noise * 2 / 3,
                (self._transfer + longest - wait - own) * noise,
            )
            for wait, own, longest, noise in rows
        ]

    def begin(self, epoch: int) -> None:
        """Read the meter; there are no data to shuffle."""
        self.meter.read(self._clock.now())

    def step(self, probe: Laps) -> int:
        if self._stop and self._stop.step == self._steps_done:
            self._do_stop(self._stop)
        laps = self.laps[self._steps_done]
        for phase, seconds in zip(PHASES, laps):
            if self._exchange and phase == "sync":
                self._exchange.wait_for_all()
            self._clock.advance(seconds)
            probe.lap(phase)
        self._steps_done += 1
        self._computed_seconds += laps[1] + laps[2]
        return self._samples

    def _do_stop(self, fault: Fault) -> None:
        """Hang or be lost, or wait for the rank that does."""
        is_culprit = self.rank == fault.rank
        if self._exchange:  # Ranks that are processes notice each other's end by themselves.
            while is_culprit:
                if fault.kind == "lost rank":
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(1.0)
            return
        if not is_culprit:
            for phase, seconds in zip(PHASES[:-1], self.laps[self._steps_done]):
                self._clock.advance(seconds)
                self._probe.lap(phase)
        if fault.kind == "lost rank":
            raise _lost() if is_culprit else _terminated()
        seconds = float(os.environ.get("SCALEWISE_PATIENCE", HANG_SECONDS))
        self._clock.advance(seconds)
        self._probe.flush()
        self._probe.note_stall(seconds)
        raise self._machine.wait_for_hanging_rank()

    def settle(self) -> None:
        """Read the meter; there is no device to wait for."""
        self.meter.read(self._clock.now(), self._computed_seconds)
        self._computed_seconds = 0.0

    def losses(self) -> list[float]:
        nan_step = self._faults.nan_step
        if nan_step is None:
            return []
        steps = range(self._losses_from, self._steps_done)
        self._losses_from = self._steps_done
        return [LOSS if step < nan_step else math.nan for step in steps]

    def validate(self) -> Quality | None:
        self._clock.advance(self._law.validate / self._world)
        return None

    def memory(self) -> int:
        return int(self._law.memory)

    def write_checkpoint(self) -> None:
        """Take the time of a checkpoint."""
        self._clock.advance(self._law.checkpoint + self._faults.checkpoint)

    def store(self, folder: Path) -> str:
        self.write_checkpoint()
        if self.rank == 0:
            spec, steps = self._spec, self.outline.steps
            epoch, place = divmod(self._steps_done, steps)
            progress = Progress(
                step=self._steps_done, epoch=epoch, place=place,
                global_batch=spec.global_batch, layout=checkpoints.layout_of(spec),
                workload=spec.workload or "", options=spec.options,
            )  # fmt: skip
            checkpoint = folder / checkpoints.name_of(self._steps_done)
            checkpoints.write_progress(checkpoint, progress)
        return ""

    def restore(self, folder: Path, tick: Callable[[], None]) -> int:
        self._steps_done = self._losses_from = self._machine.resumed_step(folder)
        self._stop = self._faults.stop(self._probe.attempt, self._steps_done)
        return self._steps_done

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
