"""A training task (model, loss, optimizer), and its parallel form made by a strategy."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from scalewise.errors import SpecError
from scalewise.frameworks import part_options
from scalewise.frameworks.data_source import Shape
from scalewise.frameworks.torch import workload
from scalewise.frameworks.torch.input.batches import IGNORED_LABEL
from scalewise.frameworks.torch.parallel.gradient_exchange import GradientExchange
from scalewise.probe import Laps
from scalewise.spec import RunSpec

MOMENTUM = 0.9


@dataclass(frozen=True, slots=True)
class Task:
    """A model and how it is trained: a class per sample, or per position of a sequence."""

    model: nn.Module
    optimizer: partial[Optimizer]
    """Builds the run's optimizer from a list of parameters."""
    skips: bool = False
    """Whether labels may be IGNORED_LABEL."""

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of the samples that count; 0 if none does."""
        logits, targets = output.float().flatten(0, -2), labels.flatten()
        if not self.skips:  # Counting costs small steps measurable time.
            return cross_entropy(logits, targets)
        total = cross_entropy(logits, targets, ignore_index=IGNORED_LABEL, reduction="sum")
        return total / (targets != IGNORED_LABEL).sum().clamp(min=1)

    def forward(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's output and the mean loss."""
        output = model(inputs)
        return output, self.loss(output, labels)


class ForwardBackward(Protocol):
    """One micro-step: forward and backward, a lap each."""

    def __call__(
        self, inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        """Return the weighted loss, 0 without the last stage; ``sync`` exchanges gradients."""
        ...


@dataclass(frozen=True, slots=True)
class Parallel:
    """A task made parallel."""

    model: nn.Module
    """This rank's part of the model; names are those of the serial model."""
    optimizer: Optimizer
    forward_backward: ForwardBackward
    evaluate: Callable[[Tensor, Tensor], Tensor | None] | None = None
    """Returns the output, or None on a rank without the last stage. Default: call ``model``."""
    exchange: GradientExchange | None = None
    """The gradient exchange of replicas, if the strategy has one."""
    scales_and_clips: bool = False
    """Whether the strategy scales the loss and clips gradients itself, as DeepSpeed does."""
    gathered: Callable[[], AbstractContextManager[None]] = nullcontext
    """Gathers the full parameters of ``model`` on every rank while entered."""
    has_uncounted_traffic: bool = False
    """Whether ranks communicate outside of PyTorch's collectives, so that bytes are unknown."""


def build_model(spec: RunSpec, shape: Shape, classes: int) -> nn.Module:
    """Return the run's model for images of a shape, or for sequences of a length."""
    model: nn.Module = part_options.build_model(workload(spec), spec, shape, classes)
    return model


OPTIMIZER_STEPS: dict[str, dict[str, bool]] = {
    "auto": {},
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def optimizer_factory(spec: RunSpec) -> partial[Optimizer]:
    """Return a function that builds the run's optimizer from a list of parameters."""
    kinds: dict[str, Any] = {
        "sgd": partial(torch.optim.SGD, momentum=MOMENTUM),
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    return partial(
        kinds[spec.optimizer], lr=spec.lr * spec.lr_factor, **OPTIMIZER_STEPS[spec.optimizer_step]
    )


def refuse_optimizer_step(spec: RunSpec, device: torch.device) -> None:
    """Refuse an implementation of the optimizer step that this device does not support."""
    parameter = nn.Parameter(torch.zeros(1, device=device))
    parameter.grad = torch.zeros_like(parameter)
    try:
        optimizer_factory(spec)([parameter]).step()
    except RuntimeError as error:
        raise SpecError(
            f"{spec.optimizer} cannot do a {spec.optimizer_step} step here: {error}",
            hint='write optimizer_step = "auto"',
        ) from error
