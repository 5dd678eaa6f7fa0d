"""Ways to spread a model over devices, as the two queues of one of them.

Devices are alike, so one is played for all of them; each collective takes what
all its ranks need together.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from scalewise.analysis.simulate.network import Exchange
from scalewise.analysis.simulate.rank_work import Bucket, Work
from scalewise.analysis.simulate.schedule import Task
from scalewise.errors import SpecError
from scalewise.spec import RunSpec, Topology
from scalewise.validate import whole


@dataclass(frozen=True, slots=True)
class Queues:
    """What a device computes and exchanges in a step, each in its order."""

    compute: list[Task]
    exchange: list[Task]
    bubble: float = 0.0
    """Seconds in which a stage waits for others, besides."""


class Strategy(Protocol):
    """A way to spread a model."""

    def replicas(self, topology: Topology) -> int:
        """Return how many have samples of their own."""
        ...

    def part(self, work: Work, topology: Topology) -> Work:
        """Return what one device does of the work of a whole model."""
        ...

    def queues(self, part: Work, exchange: Exchange, topology: Topology) -> Queues:
        """Return what a device with this part does in a step."""
        ...


@dataclass(frozen=True, slots=True)
class Ddp:
    """Every device holds the model; buckets of gradients are all-reduced beside the backward."""

    def replicas(self, topology: Topology) -> int:
        return topology.world

    def part(self, work: Work, topology: Topology) -> Work:
        return work

    def queues(self, part: Work, exchange: Exchange, topology: Topology) -> Queues:
        return _reduced(part, part.backward, exchange, topology)


@dataclass(frozen=True, slots=True)
class Fsdp:
    """All devices share the model: a block is gathered before it is used, one ahead.

    In the backward again, and then its gradients are reduced and scattered. A
    block is taken to have the same share of the forward as of the backward.
    """

    def replicas(self, topology: Topology) -> int:
        return topology.world

    def part(self, work: Work, topology: Topology) -> Work:
        return replace(work, optimizer=work.optimizer / topology.world)

    def queues(self, part: Work, exchange: Exchange, topology: Topology) -> Queues:
        blocks = list(zip((bucket.size for bucket in part.buckets), _shares(part)))
        compute: list[Task] = []
        link: list[Task] = []

        def use(size: float, seconds: float) -> None:
            """Gather a block while the one before it is computed, then compute it."""
            gather = exchange.seconds("all-gather", size, topology)
            link.append(Task(gather, after=max(0, len(compute) - 1)))
            compute.append(Task(seconds, after=len(link)))

        for micro in range(part.accumulate):
            for size, share in reversed(blocks):
                use(size, share * part.forward)
            scatters: list[Task] = []
            for size, share in blocks:
                use(size, share * part.backward)
                # Behind the gather of this block goes the scatter of the one before: it had
                # to be computed first.
                link += scatters
                scatter = Task(exchange.seconds("reduce-scatter", size, topology), len(compute))
                scatters = [scatter] if micro == part.accumulate - 1 else []
            link += scatters
        rest = _rest(part) * (part.forward + part.backward) * part.accumulate
        compute.append(Task(rest + part.optimizer, after=len(link)))
        return Queues(compute, link)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages of a model one behind the other, and small batches that pass through them.

    Of the step (p − 1)/(v m + p − 1) is bubble, with p stages, m small batches and v
    rounds. Stages are taken to be equally long, and what they hand over to be hidden
    but for the filling and the emptying of the pipeline.
    """

    stages: int
    small_batches: int = 1
    rounds: int = 1
    handed: float = 0.0
    """Bytes that a stage hands on for one small batch."""

    def __post_init__(self) -> None:
        for name in ("stages", "small_batches", "rounds"):
            whole(name, getattr(self, name), least=1)

    def replicas(self, topology: Topology) -> int:
        if topology.world % self.stages:
            raise SpecError(
                f"{self.stages} stages do not divide {topology.world} devices",
                hint="choose stages that divide the number of devices",
            )
        return topology.world // self.stages

    def part(self, work: Work, topology: Topology) -> Work:
        p = self.stages
        return replace(
            work,
            forward=work.forward / p,
            backward=work.backward / p,
            optimizer=work.optimizer / p,
            buckets=tuple(Bucket(each.size / p, each.ready) for each in work.buckets),
        )

    def queues(self, part: Work, exchange: Exchange, topology: Topology) -> Queues:
        replicas, inside = self.replicas(topology), max(1, topology.devices // self.stages)
        others = Topology(max(1, replicas // inside), inside)
        found = _reduced(part, part.backward / self.small_batches, exchange, others)
        one = (part.forward + part.backward) / self.small_batches
        filling = (self.stages - 1) * one / self.rounds + 2 * self._passing(exchange, topology)
        return replace(found, bubble=filling * part.accumulate)

    def _passing(self, exchange: Exchange, topology: Topology) -> float:
        """Return what it takes to hand one small batch through all stages, neighbours first."""
        nodes = -(-self.stages // topology.devices)
        near = exchange.seconds("point-to-point", self.handed, Topology(1, 2))
        hops = (self.stages - nodes) * near
        if nodes > 1:
            far = exchange.seconds("point-to-point", self.handed, Topology(2, 1))
            hops += (nodes - 1) * far
        return hops


def strategy_of(spec: RunSpec) -> Strategy:
    """Return how a run spreads its model; refuse what cannot be simulated."""
    split, alike = spec.degrees, spec.strategy in ("ddp", "fsdp", "pipeline")
    if not alike or split.tensor > 1 or (split.pipeline > 1 and split.shard > 1):
        raise SpecError(
            f"{spec.strategy} with {split} cannot be simulated",
            hint="ddp, fsdp and pipelines of replicas can",
        )
    if split.pipeline > 1:
        return Pipeline(split.pipeline, spec.small_batches, spec.rounds)
    return Fsdp() if spec.strategy == "fsdp" else Ddp()


def _reduced(part: Work, backward: float, exchange: Exchange, topology: Topology) -> Queues:
    """Return a step whose last ``backward`` seconds exchange buckets as they become ready."""
    lead = part.accumulate * (part.forward + part.backward) - backward
    compute = [Task(lead), *(Task(share * backward) for share in _shares(part))]
    link = [
        Task(exchange.seconds("all-reduce", bucket.size, topology), after=place)
        for place, bucket in enumerate(part.buckets, start=2)
    ]
    compute += [Task(_rest(part) * backward), Task(part.optimizer, after=len(link))]
    return Queues(compute, link)


def _shares(part: Work) -> list[float]:
    """Return which share of the backward each bucket takes."""
    ready = (0.0, *(bucket.ready for bucket in part.buckets))
    return [later - earlier for earlier, later in pairwise(ready)]


def _rest(part: Work) -> float:
    """Return which share of the backward is left when the last bucket is ready."""
    return 1 - part.buckets[-1].ready if part.buckets else 1.0
