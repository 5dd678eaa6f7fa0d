"""Plays one rank of a TensorFlow run and leaves the weights of each of its replicas.

python tensorflow_replicas.py SPEC.json OUT.npz
"""

import json
import sys
from pathlib import Path

import numpy as np

from scalewise.frameworks.tensorflow import TensorFlow
from scalewise.probe import Probe, Unwatched
from scalewise.record.write import RankFile
from scalewise.spec import RunSpec

if __name__ == "__main__":
    spec = RunSpec.from_dict(json.loads(Path(sys.argv[1]).read_text()))
    engine = TensorFlow()
    (rank,) = engine.ranks(spec)
    probe = Probe(RankFile(Path(sys.argv[1]).parent, rank, 1))
    with engine.session(spec, rank, probe) as session:
        session.begin(0)
        for _ in range(spec.steps):
            session.step(Unwatched())
        local = session._parallel.strategy.experimental_local_results
        found = {
            f"{replica}.{name}": value.numpy()
            for name, each in enumerate(session._model.weights)
            for replica, value in zip(session._parallel.replicas, local(each.value))
        }
        np.savez(sys.argv[2], **found)
