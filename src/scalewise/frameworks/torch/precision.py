"""Numeric precision of a model, and loss scaling for fp16."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scalewise.errors import SpecError
from scalewise.frameworks.torch.checkpoint.local_state import local_tensor
from scalewise.spec import RunSpec

Model = TypeVar("Model", bound=nn.Module)

MIXED_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
INITIAL_SCALE = 2.0**16
"""The first loss scale for fp16."""
GROWTH_INTERVAL_STEPS = 2000
"""Steps without an overflow after which the scale is doubled."""


def apply_precision(model: Model, spec: RunSpec) -> Model:
    """Make a model compute in the run's precision, in place; its weights stay in fp32."""
    device = next(model.parameters()).device.type
    if spec.precision in MIXED_DTYPES:
        autocast: Any = torch.autocast(device, MIXED_DTYPES[spec.precision])
        setattr(model, "forward", autocast(model.forward))
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
    """Return the dtype of preprocessed images: on accelerators, the dtype of autocast."""
    if device.type == "cpu":
        return torch.float32
    return MIXED_DTYPES.get(spec.precision, torch.float32)


class LossScaler:
    """Dynamic loss scaling for fp16. If a gradient overflows on a rank, all ranks skip the step."""

    def __init__(self, scale: float = INITIAL_SCALE) -> None:
        self.scale = scale
        self.skipped_steps = 0
        self._steps_at_scale = 0

    def unscale(self, parameters: Iterable[Tensor]) -> bool:
        """Divide the gradients by the scale; return whether they are finite on all ranks."""
        gradients = [local_tensor(p.grad) for p in parameters if p.grad is not None]
        torch._foreach_mul_(gradients, 1 / self.scale)
        # If a gradient is infinite or NaN, so is the sum: one number has to be checked.
        total = torch.stack([gradient.float().sum() for gradient in gradients]).sum()
        is_finite = torch.isfinite(total).float()
        dist.all_reduce(is_finite, op=dist.ReduceOp.MIN)
        return bool(is_finite.item())

    def state(self) -> dict[str, float]:
        return {"scale": self.scale, "good": self._steps_at_scale, "skipped": self.skipped_steps}

    def restore(self, state: Mapping[str, float]) -> None:
        self.scale = float(state["scale"])
        self._steps_at_scale, self.skipped_steps = int(state["good"]), int(state["skipped"])

    def update(self, *, is_finite: bool) -> None:
        """Halve the scale after an overflow; double it after many steps without an overflow."""
        self._steps_at_scale = self._steps_at_scale + 1 if is_finite else 0
        self.skipped_steps += not is_finite
        if not is_finite:
            self.scale /= 2
        elif self._steps_at_scale == GROWTH_INTERVAL_STEPS:
            self.scale, self._steps_at_scale = self.scale * 2, 0
