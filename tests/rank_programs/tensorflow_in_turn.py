"""Plays several TensorFlow runs of one process one after the other, and leaves their losses.

python tensorflow_in_turn.py SPECS.json OUT.json
"""

import json
import sys
from pathlib import Path

from scalewise.frameworks.data_source import Source
from scalewise.frameworks.in_memory_data import read
from scalewise.frameworks.part_options import options_for
from scalewise.frameworks.tensorflow import load_part
from scalewise.frameworks.tensorflow.session import ProcessGroup, TensorFlowSession
from scalewise.probe import Unwatched
from scalewise.probe.tensorflow import devices
from scalewise.spec import RunSpec

if __name__ == "__main__":
    specs = [RunSpec.from_dict(each) for each in json.loads(Path(sys.argv[1]).read_text())]
    names = devices.bind(specs[0])  # Once in a process.
    found = []
    for spec in specs:
        strategy = load_part("strategies", spec.strategy)
        parallel = strategy(spec, 0, names, **options_for(strategy, spec))
        processes = ProcessGroup(parallel.strategy, 1)
        session = TensorFlowSession(spec, read(Source.of_run(spec)), parallel, processes, names)
        session.trace()
        session.begin(0)
        samples = [session.step(Unwatched()) for _ in range(session.outline.steps)]
        found.append({"samples": samples, "losses": session.losses()})
    Path(sys.argv[2]).write_text(json.dumps(found))
