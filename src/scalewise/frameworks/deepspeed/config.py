"""DeepSpeed's configuration (its users' JSON file), made from a run."""

from typing import Any

from scalewise.errors import SpecError
from scalewise.spec import RunSpec
from scalewise.validate import check_choice

OFFLOADS = ("none", "cpu")
"""Where the optimizer's state may be offloaded to."""


def zero_stage(spec: RunSpec) -> int:
    """Return ZeRO's stage: 1 shards optimizer state, 2 gradients too, 3 weights too; 0 is DDP."""
    return int(spec.strategy.removeprefix("zero"))


def make_config(spec: RunSpec) -> dict[str, Any]:
    """Return DeepSpeed's configuration of a run; all else has DeepSpeed's defaults.

    The optimizer is not in it: it is PyTorch's, so that all frameworks compute the same.
    """
    offload = spec.options.get("offload", "none")
    check_choice("offload", offload, OFFLOADS)
    zero: dict[str, Any] = {"stage": zero_stage(spec)}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": spec.batch,
        "gradient_accumulation_steps": spec.accumulate,
        "gradient_clipping": spec.clip or 0.0,  # DeepSpeed's default clips to a norm of 1.
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
        config["zero_force_ds_cpu_optimizer"] = False
    if spec.precision in ("bf16", "fp16"):
        config[spec.precision] = {"enabled": True}
    return config
