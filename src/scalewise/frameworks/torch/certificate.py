"""Certificate mode of built-in workloads: dropout off, sketches of the optimizer's steps.

``frameworks.sampler.Shards`` gives a global batch the same samples on any number of devices.
"""

from itertools import islice
from typing import Any

import torch.distributed as dist

from scalewise.frameworks.sampler import Shards
from scalewise.frameworks.torch.checkpoint.local_state import local_stages, optimizer_parameters
from scalewise.frameworks.torch.session import TorchSession
from scalewise.probe import Probe
from scalewise.probe.torch import certificate_mode as mode
from scalewise.spec import RunSpec

HIDDEN_GRADIENTS = "the optimizer exchanges or hides gradients inside its step"


def record_sketches(session: TorchSession, spec: RunSpec, train_samples: int, probe: Probe) -> None:
    """Switch dropout off, and sketch the steps of the session's optimizer from now on."""
    parallel = session.parallel
    stages = [*local_stages(parallel.model)]
    for owner, name, _, replacement in mode.dropout_patches():
        setattr(owner, name, replacement)
    dropout_off = sum(map(mode.switch_dropout_off, stages))
    shards = Shards(train_samples, spec, session.replica)
    optimizer: Any = parallel.optimizer
    names = mode.parameter_names(stages)
    named = {
        names[id(parameter)]: parameter
        for parameter in optimizer_parameters(optimizer)
        if id(parameter) in names
    }
    supported = spec.framework == "torch" and hasattr(optimizer, "register_step_pre_hook")
    probe.note(
        certificate={
            "seed": spec.seed + spec.repeat,
            "order": spec.certify_order,
            "dropout_off": dropout_off,
            "layers": len(named),
            "batch_norm": mode.own_batch_norms(stages),
            "unsupported": None if supported else HIDDEN_GRADIENTS,
            "precision": spec.precision,
            "world": dist.get_world_size(),
            "epoch_steps": shards.steps,
        }
    )
    if not supported:
        return
    steps = session.outline.steps * (session.outline.epochs or 1)
    sketches = mode.OptimizerSketches(
        named, probe.note, lambda: mode.buffers_of(stages), mode.last_sketched(steps)
    )

    def before_step(*args: Any) -> None:
        sketches.begin_step()

    def after_step(*args: Any) -> None:
        if sketches.end_step():
            indices = _step_indices(shards, session, spec.accumulate)
            fingerprints = sorted(f"{index:016x}" for index in indices)
            probe.note(
                sketch_samples={
                    "step": sketches.step, "count": len(indices), "micro_steps": spec.accumulate,
                    "fingerprints": fingerprints, "replica": session.replica,
                }
            )  # fmt: skip

    optimizer.register_step_pre_hook(before_step)
    optimizer.register_step_post_hook(after_step)


def _step_indices(shards: Shards, session: TorchSession, accumulate: int) -> list[int]:
    """Return the indices of this replica's samples in the step that runs."""
    position = session.position
    shards.set_epoch(position.epoch, position.first_step)
    batches = islice(shards, accumulate)
    counts = shards.counts(position.first_step)
    return [int(index) for batch, count in zip(batches, counts) for index in batch[:count]]
