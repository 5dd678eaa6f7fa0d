"""ZeRO as DeepSpeed does it: its engine has the model, and does the whole of a step.

Its ``backward`` also averages gradients over ranks, and its ``step`` unscales and clips them,
updates this rank's part and gathers what the others updated. Where it waits for others inside of
these, PyTorch's collectives tell, as they do of every strategy.
"""

import logging
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from scalewise.errors import SpecError
from scalewise.frameworks.deepspeed.config import config, stage_of
from scalewise.frameworks.torch.models.block_compile import apply_activation_checkpointing
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.probe import Laps
from scalewise.spec import RunSpec

UNUSED = "deepspeed_shm_comm"
"""A part of DeepSpeed for inference on CPUs, which would be compiled at the first start."""


def parallelize(task: Task, mesh: DeviceMesh, spec: RunSpec, *, offload: str = "none") -> Parallel:
    """Hand the model over to DeepSpeed's engine; ``offload`` is where optimizer state lies."""
    apply_activation_checkpointing(task.model, spec)
    engine = _engine(task, spec)

    def forward_backward(
        inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        engine.set_gradient_accumulation_boundary(sync)
        _, loss = task.forward(engine, inputs, labels)
        if weight != 1.0:
            loss = loss * weight
        probe.lap("forward")
        engine.backward(loss, scale_wrt_gas=False)
        probe.lap("backward")
        return loss.detach()

    def gathered() -> AbstractContextManager[None]:
        if stage_of(spec) < 3:
            return nullcontext()
        from deepspeed.runtime.zero import GatheredParameters

        whole: AbstractContextManager[None] = GatheredParameters(list(task.model.parameters()))
        return whole

    learner = cast(Optimizer, Learner(engine, stage_of(spec), mesh.size()))
    return Parallel(task.model, learner, forward_backward, complete=True, gathered=gathered)


def _engine(task: Task, spec: RunSpec) -> Any:
    device = next(task.model.parameters()).device.type
    os.environ.setdefault("DS_ACCELERATOR", device)
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.ops.__compatible_ops__[UNUSED] = False
    try:
        engine, *_ = deepspeed.initialize(
            model=task.model, optimizer=task.optimizer(task.model.parameters()), config=config(spec)
        )
    except ValueError as bad:
        raise SpecError(
            f"DeepSpeed {deepspeed.__version__} cannot train this run on {device}: {bad}"
        ) from bad
    return engine


class Learner:
    """The engine's step in the place of an optimizer's."""

    def __init__(self, engine: Any, stage: int, ranks: int) -> None:
        self._engine, self._stage, self._ranks = engine, stage, ranks

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """What PyTorch's optimizer inside updates; a rate that is set here counts."""
        groups: list[dict[str, Any]] = self._engine.optimizer.param_groups
        return groups

    def step(self) -> None:
        """Have the engine do its step."""
        self._engine.step()

    def zero_grad(self) -> None:
        """Leave it: the engine's step has let all gradients go."""

    def held(self) -> dict[str, int]:
        """Return the bytes of this rank's parameters, gradients and optimizer state.

        Gradients are gone when a step is over: theirs are reckoned, a whole set, or this rank's
        share of it from the second stage on. What a step gathers for a while is not among these.
        """
        model = list(self._engine.module.parameters())
        inside = self._engine.basic_optimizer
        updated = [each for group in inside.param_groups for each in group["params"]]
        own = {id(each) for each in model}
        copies = {id(each): each for each in (*updated, *inside.state) if id(each) not in own}
        remembered = [value for each in inside.state.values() for value in each.values()]
        sizes = [getattr(each, "ds_numel", each.numel()) * each.element_size() for each in model]
        shares = [getattr(each, "ds_tensor", each) for each in model]
        return {
            "parameters": _bytes(shares),
            "gradients": sum(sizes) // (self._ranks if self._stage > 1 else 1),
            "optimizer": _bytes((*copies.values(), *remembered)),
        }


def _bytes(tensors: Iterable[Any]) -> int:
    whole = [each for each in tensors if isinstance(each, Tensor)]
    return sum(each.numel() * each.element_size() for each in whole)
