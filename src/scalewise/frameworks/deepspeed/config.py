"""DeepSpeed's own settings, made of a run: what its users keep in a JSON file."""

from typing import Any

from scalewise.errors import SpecError
from scalewise.spec import RunSpec
from scalewise.validate import choice

OFFLOADS = ("none", "cpu")
"""Where the optimizer's state may lie, instead of on the device."""


def stage_of(spec: RunSpec) -> int:
    """Return how much ZeRO shares out: nothing, optimizer state, gradients too, weights too."""
    return int(spec.strategy.removeprefix("zero"))


def config(spec: RunSpec) -> dict[str, Any]:
    """Return what DeepSpeed is told of a run; what it does not say is as DeepSpeed itself has it.

    The optimizer is not among it: it is PyTorch's own, so that all frameworks learn alike.
    """
    offload = spec.options.get("offload", "none")
    choice("offload", offload, OFFLOADS)
    zero: dict[str, Any] = {"stage": stage_of(spec)}
    told: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": spec.batch,
        "gradient_accumulation_steps": spec.accumulate,
        "gradient_clipping": spec.clip or 0.0,  # Left to itself, it clips to a norm of 1.
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
    }
    if offload != "none":
        if not stage_of(spec):
            raise SpecError(
                "zero0 shares no optimizer state out, and only shared state can be offloaded",
                hint='write strategy = "zero1", or leave offload out',
            )
        zero["offload_optimizer"] = {"device": offload}
        told["zero_force_ds_cpu_optimizer"] = False
    if spec.precision in ("bf16", "fp16"):
        told[spec.precision] = {"enabled": True}
    return told
