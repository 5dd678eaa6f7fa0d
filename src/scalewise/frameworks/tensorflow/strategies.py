"""Every device holds the model, and gradients are added up: within a process, or between many."""

import json
import os
from dataclasses import dataclass, field
from typing import Any

from scalewise.frameworks.tensorflow.rendezvous import meet
from scalewise.spec import RunSpec
from scalewise.validate import whole


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far the input runs ahead of the training."""

    prefetch: int = 2
    """Batches of each device that are made ready beforehand."""

    def __post_init__(self) -> None:
        whole("prefetch", self.prefetch, least=0)


@dataclass(frozen=True, slots=True)
class Parallel:
    """Who trains together."""

    strategy: Any
    """TensorFlow's own."""
    replicas: range
    """Those that live in this process."""
    ahead: Ahead = field(default_factory=Ahead)


USUAL = Ahead()


def mirrored(spec: RunSpec, rank: int, names: list[str], ahead: Ahead = USUAL) -> Parallel:
    """All devices of this process, which is the only one."""
    import tensorflow as tf

    return Parallel(tf.distribute.MirroredStrategy(names), range(len(names)), ahead)


def multiworker(spec: RunSpec, rank: int, names: list[str], ahead: Ahead = USUAL) -> Parallel:
    """One device of each process; they find each other at rank 0's."""
    import tensorflow as tf

    workers = meet(rank, spec.ranks, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return Parallel(strategy, range(rank, rank + 1), ahead)
