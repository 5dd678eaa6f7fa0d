"""Data parallelism: gradients are averaged within one process, or between several."""

import json
import os
from dataclasses import dataclass
from typing import Any

from scalewise.frameworks.tensorflow.rendezvous import exchange_addresses
from scalewise.spec import RunSpec
from scalewise.validate import check_integer


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The options of a run that concern its input."""

    prefetch: int = 2
    """Batches per device that are prepared in advance."""

    def __post_init__(self) -> None:
        check_integer("prefetch", self.prefetch, minimum=0)


@dataclass(frozen=True, slots=True)
class Parallel:
    """A ``tf.distribute`` strategy, and this process's part in it."""

    strategy: Any
    replicas: range
    """The numbers of the replicas in this process."""
    input_options: InputOptions


DEFAULT_INPUT = InputOptions()


def mirrored(
    spec: RunSpec, rank: int, devices: list[str], input_options: InputOptions = DEFAULT_INPUT
) -> Parallel:
    """Use all devices of this process, which is the only process of the run."""
    import tensorflow as tf

    return Parallel(tf.distribute.MirroredStrategy(devices), range(len(devices)), input_options)


def multiworker(
    spec: RunSpec, rank: int, devices: list[str], input_options: InputOptions = DEFAULT_INPUT
) -> Parallel:
    """Use one device per process; the processes get each other's addresses from rank 0."""
    import tensorflow as tf

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    workers = exchange_addresses(rank, spec.ranks, host, port)
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return Parallel(strategy, range(rank, rank + 1), input_options)
