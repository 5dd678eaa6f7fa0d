"""What a workload gives to training, and what a strategy makes of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from scalewise.probe import Laps
from scalewise.spec import Precision, RunSpec

MOMENTUM = 0.9


@dataclass(frozen=True, slots=True)
class Task:
    """A model and how it learns: classification of images, for now."""

    model: nn.Module
    optimizer: Callable[[Iterable[Tensor]], Optimizer]
    precision: Precision = "fp32"

    def forward(self, model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's output and the mean loss, in the precision of the run."""
        if self.precision == "bf16":
            with torch.autocast(images.device.type, torch.bfloat16):
                output = model(images)
                return output, cross_entropy(output, labels)
        output = model(images)
        return output, cross_entropy(output, labels)


class ForwardBackward(Protocol):
    """One micro-step: forward and backward, a lap each."""

    def __call__(
        self, images: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        """Return the weighted loss; gradients are exchanged when ``sync`` says so."""
        ...


@dataclass(frozen=True, slots=True)
class Parallel:
    """A task made parallel."""

    model: nn.Module
    optimizer: Optimizer
    forward_backward: ForwardBackward


def optimizer(spec: RunSpec) -> Callable[[Iterable[Tensor]], Optimizer]:
    """Return what makes the run's optimizer for a list of parameters."""
    if spec.optimizer == "sgd":
        return lambda parameters: torch.optim.SGD(parameters, lr=spec.lr, momentum=MOMENTUM)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[spec.optimizer]
    return lambda parameters: kind(parameters, lr=spec.lr)
