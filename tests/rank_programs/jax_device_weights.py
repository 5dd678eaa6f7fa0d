"""Train one rank of a JAX run, then leave the weights of each of its devices beside the record.

    python jax_device_weights.py FOLDER

The folder holds the run's spec.json; the variables of a starter tell the rank.
"""

import json
import sys
from pathlib import Path

import numpy as np

from scalewise.frameworks.jax import Jax
from scalewise.frameworks.loop import Training
from scalewise.probe import Probe
from scalewise.record.write import RankFile
from scalewise.spec import RunSpec

folder = Path(sys.argv[1])
spec = RunSpec.from_dict(json.loads((folder / "spec.json").read_text()))
(rank,) = Jax().ranks(spec)
probe = Probe(RankFile(folder, rank, 1))
with Jax().session(spec, rank, probe) as session:
    Training(spec, session, probe, folder, None).run()
    for name, array in session._state.weights.items():
        for shard in array.addressable_shards:
            assert shard.data.shape == array.shape, "a device holds a part of the weights"
            np.save(folder / f"{name}-{rank}-{shard.device.id}.npy", np.asarray(shard.data))
