"""DeepSpeed: PyTorch's models, their state sharded by DeepSpeed's engine (ZeRO).

``import deepspeed`` finds the library, not this package. This file imports neither the library nor
torch: checks run without them.
"""

import json
from contextlib import AbstractContextManager
from typing import Any

from scalewise.errors import SpecError
from scalewise.frameworks import Refused, Session, installed_version, refuse_fields, refuse_older
from scalewise.frameworks.torch import ENGINE_UNSUPPORTED, OverTorch, refuse_torch, refuse_unfit
from scalewise.probe import Probe
from scalewise.record.write import write_text
from scalewise.spec import RunSpec
from scalewise.validate import check_choice

OLDEST = (0, 19)
"""Oldest supported version of DeepSpeed."""
CONFIG_FILE = "deepspeed.json"
OFFLOADS = ("none", "cpu")
"""Values of the option ``offload``: where the optimizer state is kept instead of on the device."""


class Deepspeed(OverTorch):
    """Trains PyTorch's workloads with DeepSpeed's engine, one process per device."""

    package = "deepspeed"

    def check(self, spec: RunSpec) -> None:
        version = installed_version("deepspeed", extra="deepspeed")
        refuse_older("DeepSpeed", version, OLDEST, hint="pip install --upgrade deepspeed")
        refuse_torch(spec)
        stage_unsupported: Refused = {"ema": None} if zero_stage(spec) == 3 else {}
        refuse_fields(spec, {**ENGINE_UNSUPPORTED, **stage_unsupported}, {})
        refuse_unfit(spec)
        make_config(spec)  # Refuses a wrong ``offload``.

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        if rank == 0:  # For the user; the run itself does not read it.
            write_text(probe.folder / CONFIG_FILE, json.dumps(make_config(spec), indent=1) + "\n")
        return super().session(spec, rank, probe)


def zero_stage(spec: RunSpec) -> int:
    """Return ZeRO's stage: 1 shards optimizer state, 2 gradients too, 3 weights too; 0 nothing."""
    return int(spec.strategy.removeprefix("zero"))


def make_config(spec: RunSpec) -> dict[str, Any]:
    """Return DeepSpeed's configuration of a run, without the optimizer, which is PyTorch's."""
    offload = spec.options.get("offload", "none")
    check_choice("offload", offload, OFFLOADS)
    zero: dict[str, Any] = {"stage": zero_stage(spec)}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": spec.batch,
        "gradient_accumulation_steps": spec.accumulate,
        "gradient_clipping": spec.clip or 0.0,  # 0: no clipping; the default would clip to 1.
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
    }
    if offload != "none":
        if not zero_stage(spec):
            raise SpecError(
                "zero0 shards no optimizer state, and only sharded state can be offloaded",
                hint='write strategy = "zero1", or leave offload out',
            )
        zero["offload_optimizer"] = {"device": offload}
        config["zero_force_ds_cpu_optimizer"] = False  # Accept PyTorch's optimizer.
    if spec.precision in ("bf16", "fp16"):
        config[spec.precision] = {"enabled": True}
    return config
