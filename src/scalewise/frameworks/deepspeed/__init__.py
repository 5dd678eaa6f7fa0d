"""DeepSpeed: PyTorch's models, trained by an engine that shares their state out (ZeRO).

The real package and this one have the same name; imports are absolute, so they never meet. This
file imports neither torch nor it: a run can be checked without them.
"""

import json
from contextlib import AbstractContextManager

from scalewise.errors import SpecError
from scalewise.frameworks import Session, installed, refuse_older
from scalewise.frameworks.deepspeed.config import config, stage_of
from scalewise.frameworks.torch import OverTorch, refuse_start, refuse_unfit
from scalewise.probe import Probe
from scalewise.record.write import write_text
from scalewise.spec import RunSpec

OLDEST = (0, 19)
"""Of DeepSpeed's versions that we train with."""
FILE = "deepspeed.json"


class Deepspeed(OverTorch):
    """Trains PyTorch's workloads with DeepSpeed's engine, one process per device."""

    package = "deepspeed"

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        there = installed("deepspeed", extra="deepspeed")
        refuse_older("DeepSpeed", there, OLDEST, hint="pip install --upgrade deepspeed")
        refuse_start(spec)
        _refuse_unknown(spec)
        refuse_unfit(spec)
        config(spec)

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        """Set up a training on this rank's device, and leave what DeepSpeed is told to read."""
        if rank == 0:
            write_text(probe.folder / FILE, json.dumps(config(spec), indent=1) + "\n")
        return super().session(spec, rank, probe)


def _refuse_unknown(spec: RunSpec) -> None:
    """Refuse what DeepSpeed's engine is not asked for here."""
    asked = {
        "parallelism": spec.degrees.degree > 1,
        "compile": bool(spec.compile),
        "noise_every": bool(spec.noise_every),
        "checkpoint_every": spec.checkpoint_every is not None,
        "resume": spec.resume is not None,
        "ema": spec.ema is not None and stage_of(spec) == 3,
    }
    for field, wanted in asked.items():
        if wanted:
            raise SpecError(
                f"{field} does not go together with deepspeed's {spec.strategy} yet",
                hint=f'leave {field} out, or write framework = "torch"',
            )
