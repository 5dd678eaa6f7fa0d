"""DeepSpeed: PyTorch's models, their state sharded by DeepSpeed's engine (ZeRO).

This package has the name of the real one; absolute imports keep them apart. This file imports
neither torch nor deepspeed: a run can be checked without them.
"""

import json
from contextlib import AbstractContextManager

from scalewise.errors import SpecError
from scalewise.frameworks import Session, installed, refuse_older
from scalewise.frameworks.deepspeed.config import make_config, zero_stage
from scalewise.frameworks.torch import OverTorch, refuse_torch, refuse_unfit
from scalewise.probe import Probe
from scalewise.record.write import write_text
from scalewise.spec import RunSpec

OLDEST = (0, 19)
"""Oldest supported version of DeepSpeed."""
CONFIG_FILE = "deepspeed.json"


class Deepspeed(OverTorch):
    """Trains PyTorch's workloads with DeepSpeed's engine, one process per device."""

    package = "deepspeed"

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        version = installed("deepspeed", extra="deepspeed")
        refuse_older("DeepSpeed", version, OLDEST, hint="pip install --upgrade deepspeed")
        refuse_torch(spec)
        _refuse_fields(spec)
        refuse_unfit(spec)
        make_config(spec)

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        """Set up a training on this rank's device; write DeepSpeed's configuration for the user."""
        if rank == 0:
            write_text(probe.folder / CONFIG_FILE, json.dumps(make_config(spec), indent=1) + "\n")
        return super().session(spec, rank, probe)


def _refuse_fields(spec: RunSpec) -> None:
    """Refuse fields that DeepSpeed runs do not support."""
    unsupported = {
        "parallelism": spec.degrees.degree > 1,
        "compile": bool(spec.compile),
        "noise_every": bool(spec.noise_every),
        "checkpoint_every": spec.checkpoint_every is not None,
        "resume": spec.resume is not None,
        "ema": spec.ema is not None and zero_stage(spec) == 3,
    }
    for field, is_set in unsupported.items():
        if is_set:
            raise SpecError(
                f"{field} does not go together with deepspeed's {spec.strategy} yet",
                hint=f'leave {field} out, or write framework = "torch"',
            )
