"""In which numbers a model computes, and what keeps small gradients from vanishing."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scalewise.errors import SpecError
from scalewise.frameworks.torch.checkpoint.state_bytes import local_tensor
from scalewise.spec import RunSpec

Model = TypeVar("Model", bound=nn.Module)

MIXED_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
INITIAL_SCALE = 2.0**16
"""What a loss is multiplied by at first, where its gradients might be too small for 16 bits."""
GROWTH_INTERVAL_STEPS = 2000
"""Steps without an overflow after which twice as much is tried."""


def apply_precision(model: Model, spec: RunSpec) -> Model:
    """Have a model compute in the precision of the run; its weights stay what they are."""
    device = next(model.parameters()).device.type
    if spec.precision in MIXED_DTYPES:
        cast: Any = torch.autocast(device, MIXED_DTYPES[spec.precision])
        setattr(model, "forward", cast(model.forward))
    elif spec.precision == "tf32":
        if device != "cuda":
            raise SpecError(
                f"tf32 is a mode of CUDA devices, and this rank has {device}",
                hint='write precision = "fp32"',
            )
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    return model


def input_dtype(spec: RunSpec, device: torch.device) -> torch.dtype:
    """Return the numbers that images become on their way to a model.

    Those that an accelerator's first layer would cast them to. Hosts finish images while others
    compute, and leave that to the layer.
    """
    return (
        torch.float32 if device.type == "cpu" else MIXED_DTYPES.get(spec.precision, torch.float32)
    )


class LossScaler:
    """Keeps the gradients of 16-bit floats in their range: the loss is multiplied, and they
    are divided again. Where one overflows on any rank, no rank does that step."""

    def __init__(self, scale: float = INITIAL_SCALE) -> None:
        self.scale = scale
        self.skipped = 0
        self._good = 0

    def unscale(self, parameters: Iterable[Tensor]) -> bool:
        """Divide the gradients; say whether all of them, everywhere, are numbers."""
        gradients = [local_tensor(each.grad) for each in parameters if each.grad is not None]
        torch._foreach_mul_(gradients, 1 / self.scale)
        sums = torch.stack([each.float().sum() for each in gradients]).sum()
        fine = torch.isfinite(sums).float()
        dist.all_reduce(fine, op=dist.ReduceOp.MIN)
        return bool(fine.item())

    def state(self) -> dict[str, float]:
        """Return what a checkpoint must keep."""
        return {"scale": self.scale, "good": self._good, "skipped": self.skipped}

    def restore(self, state: Mapping[str, float]) -> None:
        """Go on from what a checkpoint kept."""
        self.scale = float(state["scale"])
        self._good, self.skipped = int(state["good"]), int(state["skipped"])

    def update(self, *, fine: bool) -> None:
        """Learn from a step: halve the scale after an overflow, double it after many without."""
        self._good = self._good + 1 if fine else 0
        self.skipped += not fine
        if not fine:
            self.scale /= 2
        elif self._good == GROWTH_INTERVAL_STEPS:
            self.scale, self._good = self.scale * 2, 0
