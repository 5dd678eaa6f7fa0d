"""In which numbers a model computes."""

from typing import TypeVar

import torch
from torch import nn

from scalewise.spec import RunSpec

Model = TypeVar("Model", bound=nn.Module)


def precise(model: Model, spec: RunSpec) -> Model:
    """Have a model compute in the precision of the run; its weights stay what they are."""
    if spec.precision == "bf16":
        device = next(model.parameters()).device.type
        model.forward = torch.autocast(device, torch.bfloat16)(model.forward)
    return model
