"""ZeRO by DeepSpeed: its engine wraps the model and does the complete step.

``backward`` also averages gradients over ranks; ``step`` unscales and clips them, updates this
rank's shard and gathers the others. DeepSpeed calls PyTorch's collectives, so their wait is timed.
"""

import logging
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from scalewise.errors import SpecError
from scalewise.frameworks.deepspeed import make_config, zero_stage
from scalewise.frameworks.torch.checkpoint.local_state import optimizer_parameters
from scalewise.frameworks.torch.models.block_compile import apply_activation_checkpointing
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.probe import Laps
from scalewise.spec import RunSpec

INFERENCE_OP = "deepspeed_shm_comm"
"""An extension for inference on CPUs, which DeepSpeed would compile at the first start."""


def parallelize(task: Task, mesh: DeviceMesh, spec: RunSpec, *, offload: str = "none") -> Parallel:
    """Wrap the model in DeepSpeed's engine; ``make_config`` reads ``offload`` from the options."""
    apply_activation_checkpointing(task.model, spec)
    engine = _make_engine(task, spec)

    def forward_backward(
        inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        engine.set_gradient_accumulation_boundary(sync)
        _, loss = task.forward(engine, inputs, labels)
        if weight != 1.0:
            loss = loss * weight
        probe.lap("forward")
        # False: ``weight`` already divides the loss by ``accumulate``.
        engine.backward(loss, scale_wrt_gas=False)
        probe.lap("backward")
        return loss.detach()

    def gathered() -> AbstractContextManager[None]:
        """Return a context in which this rank has the complete parameters, also in stage 3."""
        if zero_stage(spec) < 3:
            return nullcontext()
        from deepspeed.runtime.zero import GatheredParameters

        parameters = list(task.model.parameters())
        return cast(AbstractContextManager[None], GatheredParameters(parameters))

    optimizer = cast(Optimizer, EngineOptimizer(engine, zero_stage(spec), mesh.size()))
    return Parallel(
        task.model, optimizer, forward_backward, scales_and_clips=True, gathered=gathered
    )


def _make_engine(task: Task, spec: RunSpec) -> Any:
    device = next(task.model.parameters()).device.type
    os.environ.setdefault("DS_ACCELERATOR", device)
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.ops.__compatible_ops__[INFERENCE_OP] = False
    try:
        engine, *_ = deepspeed.initialize(
            model=task.model,
            optimizer=task.optimizer(task.model.parameters()),
            config=make_config(spec),
        )
    except ValueError as error:
        raise SpecError(
            f"DeepSpeed {deepspeed.__version__} cannot train this run on {device}: {error}"
        ) from error
    return engine


class EngineOptimizer:
    """An optimizer whose step is that of DeepSpeed's engine."""

    def __init__(self, engine: Any, stage: int, ranks: int) -> None:
        self._engine, self._stage, self._ranks = engine, stage, ranks

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of PyTorch's optimizer inside; a learning rate set here takes effect."""
        groups: list[dict[str, Any]] = self._engine.optimizer.param_groups
        return groups

    def step(self) -> None:
        self._engine.step()

    def zero_grad(self) -> None:
        """Do nothing: the engine's step has freed the gradients."""

    def state_bytes(self) -> dict[str, int]:
        """Return the bytes of this rank's parameters, gradients and optimizer state.

        A step frees gradients, so their bytes are computed: from stage 2 on for this rank's shard,
        else for all gradients. Parameters that a step gathers temporarily are not included.
        """
        params = list(self._engine.module.parameters())
        torch_optimizer = self._engine.basic_optimizer
        optimizer_state = torch_optimizer.state
        updated_params = optimizer_parameters(torch_optimizer)
        model_ids = {id(param) for param in params}
        # Copies in 32 bits, or flattened shards, which are not the model's own parameters.
        copies = {id(p): p for p in (*updated_params, *optimizer_state) if id(p) not in model_ids}
        moments = [value for state in optimizer_state.values() for value in state.values()]
        # Stage 3 keeps a shard as ds_tensor, and the full size as ds_numel.
        full_bytes = [getattr(p, "ds_numel", p.numel()) * p.element_size() for p in params]
        tensors = [value for value in (*copies.values(), *moments) if isinstance(value, Tensor)]
        return {
            "parameters": sum(getattr(param, "ds_tensor", param).nbytes for param in params),
            "gradients": sum(full_bytes) // (self._ranks if self._stage > 1 else 1),
            "optimizer": sum(tensor.nbytes for tensor in tensors),
        }
