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
from scalewise.frameworks.torch import workload_factory
from scalewise.frameworks.torch.input.batches import IGNORED_LABEL
from scalewise.frameworks.torch.parallel.gradient_exchange import GradientExchange
from scalewise.probe import Laps
from scalewise.spec import RunSpec

MOMENTUM = 0.9


@dataclass(frozen=True, slots=True)
class Task:
    """A model, its loss and its optimizer. A label is a class: of a sample, or of a token."""

    model: nn.Module
    optimizer: partial[Optimizer]
    """Builds the run's optimizer from a list of parameters."""
    may_ignore_labels: bool = False
    """Whether labels may be IGNORED_LABEL."""

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss over labels that are not ignored; 0 if all are ignored."""
        logits, targets = output.float().flatten(0, -2), labels.flatten()
        if not self.may_ignore_labels:  # The count below would slow small steps measurably.
            return cross_entropy(logits, targets)
        total = cross_entropy(logits, targets, ignore_index=IGNORED_LABEL, reduction="sum")
        return total / (targets != IGNORED_LABEL).sum().clamp(min=1)

    def forward(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's output and the mean loss."""
        output = model(inputs)
        return output, self.loss(output, labels)


class ForwardBackward(Protocol):
    """Runs forward and backward of one micro-step, and times each with a lap of the probe."""

    def __call__(
        self, inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        """Return loss x weight (0 on earlier pipeline stages); exchange gradients if ``sync``."""
        ...


@dataclass(frozen=True, slots=True)
class Parallel:
    """This rank's part of a task, as a strategy has distributed it."""

    model: nn.Module
    """This rank's part of the model. Its parameters have the same names as without parallelism."""
    optimizer: Optimizer
    forward_backward: ForwardBackward
    evaluate: Callable[[Tensor, Tensor], Tensor | None] | None = None
    """Returns the output, or None on a rank without the last stage. If unset, call ``model``."""
    exchange: GradientExchange | None = None
    """The gradient exchange of replicas, if the strategy has one."""
    scales_and_clips: bool = False
    """Whether the strategy scales the loss and clips gradients itself, as DeepSpeed does."""
    gathered: Callable[[], AbstractContextManager[None]] = nullcontext
    """A context in which every rank has the full parameters of ``model``."""
    has_uncounted_traffic: bool = False
    """Whether ranks communicate outside of PyTorch's collectives, so that bytes are unknown."""


def build_model(spec: RunSpec, shape: Shape, classes: int) -> nn.Module:
    """Return the run's model for samples of a shape: an image's shape, or a sequence's length."""
    model: nn.Module = part_options.build_model(workload_factory(spec), spec, shape, classes)
    return model


OPTIMIZER_STEPS: dict[str, dict[str, bool]] = {
    "auto": {},
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
"""Arguments of PyTorch's optimizers for each value of ``optimizer_step``."""


def optimizer_factory(spec: RunSpec) -> partial[Optimizer]:
    """Return a function that builds the run's optimizer from a list of parameters."""
    builders: dict[str, Any] = {
        "sgd": partial(torch.optim.SGD, momentum=MOMENTUM),
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    arguments = OPTIMIZER_STEPS[spec.optimizer_step]
    return partial(builders[spec.optimizer], lr=spec.lr * spec.lr_factor, **arguments)


def refuse_optimizer_step(spec: RunSpec, device: torch.device) -> None:
    """Try the run's optimizer on one parameter; refuse a step that the device does not support."""
    parameter = nn.Parameter(torch.zeros(1, device=device))
    parameter.grad = torch.zeros_like(parameter)
    try:
        optimizer_factory(spec)([parameter]).step()
    except RuntimeError as error:
        raise SpecError(
            f"{spec.optimizer} cannot do a {spec.optimizer_step} step here: {error}",
            hint='write optimizer_step = "auto"',
        ) from error
