"""Data parallelism over a mesh: the batch is cut, the weights are everywhere alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclass(frozen=True, slots=True)
class Layout:
    """How arrays lie on the devices of a run."""

    batch: NamedSharding
    """Of what has micro-steps first, and then samples: each device has its own of these."""
    alike: NamedSharding
    """Of what every device holds whole."""

    def spread(self, mine: np.ndarray[Any, Any]) -> Any:
        """Give a batch to the devices; ``mine`` are the samples of this process's own ones."""
        if jax.process_count() == 1:
            return jax.device_put(mine, self.batch)
        return jax.make_array_from_process_local_data(self.batch, mine)

    def copied(self, tree: Any) -> Any:
        """Give the same numbers to every device."""

        def copy(each: np.ndarray[Any, Any]) -> Any:
            return jax.make_array_from_callback(
                each.shape, self.alike, lambda part: each[part].copy()
            )

        return jax.tree.map(copy, tree)


def parallelize(devices: Sequence[Any]) -> Layout:
    """Lay a run over devices, replica by replica: XLA adds up the gradients where they meet."""
    mesh = Mesh(np.array(devices), ("replica",))
    return Layout(
        batch=NamedSharding(mesh, PartitionSpec(None, "replica")),
        alike=NamedSharding(mesh, PartitionSpec()),
    )
