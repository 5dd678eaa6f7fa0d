"""Data parallelism over a mesh: the batch is sharded, the weights are replicated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclass(frozen=True, slots=True)
class Layout:
    """The shardings of a run's arrays."""

    batch: NamedSharding
    """For arrays of micro-steps × samples, whose samples are divided over the devices."""
    replicated: NamedSharding
    """For arrays that every device holds completely."""

    def shard(self, local_batch: np.ndarray[Any, Any]) -> Any:
        """Put a batch on the devices; ``local_batch`` has the samples of this process's devices."""
        if jax.process_count() == 1:
            return jax.device_put(local_batch, self.batch)
        return jax.make_array_from_process_local_data(self.batch, local_batch)

    def replicate(self, tree: Any) -> Any:
        """Put a copy of each array on every device."""

        def copy(array: np.ndarray[Any, Any]) -> Any:
            return jax.make_array_from_callback(
                array.shape, self.replicated, lambda index: array[index].copy()
            )

        return jax.tree.map(copy, tree)


def parallelize(devices: Sequence[Any]) -> Layout:
    """Return the layout for the device of each replica. XLA adds the all-reduce of gradients."""
    mesh = Mesh(np.array(devices), ("replica",))
    return Layout(
        batch=NamedSharding(mesh, PartitionSpec(None, "replica")),
        replicated=NamedSharding(mesh, PartitionSpec()),
    )
