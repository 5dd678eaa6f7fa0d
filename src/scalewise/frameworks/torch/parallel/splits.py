"""Whether a model can be split as a run asks, found out before any rank starts."""

from dataclasses import fields
from inspect import signature

import torch
from torch import nn

from scalewise import plugins
from scalewise.errors import SpecError
from scalewise.frameworks.data_source import Shape, Source
from scalewise.frameworks.torch.models.parts import Parts, blocks_of, seams_of
from scalewise.frameworks.torch.parallel.batchnorm import has_batchnorm
from scalewise.frameworks.torch.parallel.ddp import Buckets
from scalewise.frameworks.torch.task import build_model
from scalewise.spec import RunSpec


def refuse_impossible(spec: RunSpec) -> None:
    """Refuse degrees that this model or this batch cannot be split by."""
    split = spec.degrees
    if spec.strategy == "hsdp" and spec.topology.devices % (split.shard * split.tensor):
        raise SpecError(
            f"hsdp shards inside a node, and {split.shard} x tensor {split.tensor} does not "
            f"divide its {spec.topology.devices} devices",
            hint="leave shard out",
        )
    _refuse_buckets(spec)
    whole = split.tensor * split.pipeline == 1
    if spec.strategy == "zero1" and not whole:
        raise SpecError(
            "zero1 does not go together with tensor or pipeline",
            hint='write strategy = "fsdp", which shards more and goes with both',
        )
    by_blocks = {"recompute": spec.recompute != "none", "compile": spec.compile == "blocks"}
    shape = Source.of_run(spec).shape
    model = _outline(spec, shape)
    if spec.sync_batchnorm and not (whole and has_batchnorm(model)):
        lacks = "has no batch normalization" if whole else "is split"
        raise SpecError(
            f"{spec.workload} {lacks}, and sync_batchnorm = true is for whole models that have it",
            hint="leave sync_batchnorm out",
        )
    if spec.recompute == "selective" and spec.compile and has_batchnorm(model):
        raise SpecError(
            f"{spec.workload} has batch normalization, whose statistics a compiled step with "
            'recompute = "selective" would take twice',
            hint='write recompute = "full", or leave compile out',
        )
    for field, asked in by_blocks.items():
        if asked and not blocks_of(model):
            said = f"{field} = {getattr(spec, field)!r}"
            raise SpecError(
                f"{spec.workload} has no blocks, and {said} is for them",
                hint=f"leave {field} out; vit, gpt, resnet50 and an mlp of some layers have blocks",
            )
    if split.tensor > 1:
        _refuse_tensor(model, spec)
    if split.pipeline > 1:
        _refuse_old_pipeline()
        _refuse_pipeline(model, spec)
    if isinstance(model, Parts) and has_batchnorm(model):
        _refuse_lonely(model, spec, shape)


def _outline(spec: RunSpec, shape: Shape) -> nn.Module:
    """Return the run's model without its weights; with them, where a library's needs numbers."""
    try:
        with torch.device("meta"):
            return build_model(spec, shape, 10)
    except SpecError:
        if not plugins.lies_elsewhere(str(spec.workload), "torch"):
            raise
    return build_model(spec, shape, 10)


def _refuse_lonely(model: Parts, spec: RunSpec, shape: Shape) -> None:
    """Refuse so few samples at once that batch normalization has one value, and no spread of it."""
    assert spec.batch is not None
    if isinstance(shape, int):
        return
    together = spec.batch // (spec.pipeline_micro_batches if spec.degrees.pipeline > 1 else 1)
    try:
        model(torch.zeros(together, *shape, device="meta"))
    except RuntimeError:
        return  # What cannot be told without numbers, the run itself will tell.
    except ValueError as bad:
        fewer = ", or fewer micro_batches" if spec.degrees.pipeline > 1 else ""
        raise SpecError(
            f"{spec.workload} normalizes over a batch of {together} at once: {bad}",
            hint=f"use a larger batch{fewer}, or larger images",
        ) from bad


def _refuse_buckets(spec: RunSpec) -> None:
    """Refuse settings of DDP where it is not what exchanges gradients, or cannot take them."""
    ours = [each.name for each in fields(Buckets) if each.name in spec.options]
    if ours and spec.degrees.tensor > 1:
        raise SpecError(
            f"{ours[0]} is a setting of DDP, which cannot hold layers that are split by tensor",
            hint=f"leave {ours[0]} out",
        )
    several = spec.accumulate > 1 or spec.degrees.pipeline > 1
    if spec.options.get("static_graph") and several:
        raise SpecError(
            "static_graph does not go together with accumulate or pipeline: DDP then has "
            "backwards that exchange nothing",
            hint="leave static_graph out",
        )


def _refuse_tensor(model: nn.Module, spec: RunSpec) -> None:
    seams, degree = seams_of(model), spec.degrees.tensor
    if not seams.columns:
        raise SpecError(
            f"{spec.workload} does not say how its layers may be split over devices",
            hint="tensor parallelism is for mlp, and for vit and gpt of all sizes",
        )
    if seams.heads is not None and seams.heads % degree:
        raise SpecError(
            f"{spec.workload} has {seams.heads} heads, which tensor {degree} does not divide",
            hint=f"choose a tensor degree that divides {seams.heads}",
        )
    layers = [each for block in blocks_of(model) for each in block.named_modules()]
    for name, layer in layers:
        units = getattr(layer, "out_features", 0) if name in seams.columns else 0
        if units % degree:
            raise SpecError(
                f"a layer of {spec.workload} has {units} units, which tensor {degree} does not "
                "divide",
            )


def _refuse_old_pipeline() -> None:
    """Refuse a PyTorch whose schedules always hand the outputs back: ours hang there."""
    from torch.distributed.pipelining import ScheduleGPipe

    if "return_outputs" not in signature(ScheduleGPipe.step).parameters:
        raise SpecError(
            f"a pipeline needs a newer PyTorch than {torch.__version__}",
            hint="pip install --upgrade torch",
        )


def _refuse_pipeline(model: nn.Module, spec: RunSpec) -> None:
    stages, blocks = spec.degrees.pipeline * spec.rounds, len(blocks_of(model))
    if seams_of(model).tied:
        raise SpecError(
            f"{spec.workload} is tied: its last layer uses the weights of its first, and a "
            "pipeline puts them on different devices",
            hint="write options = {tied = false}",
        )
    whole = "a pipeline is for the built-in models, and for others that are made of Parts"
    if blocks and not isinstance(model, Parts):
        raise SpecError(
            f"{spec.workload} does not say how its blocks follow each other", hint=whole
        )
    each = " (two on each device)" if spec.rounds > 1 else ""
    if blocks < stages:
        raise SpecError(
            f"{spec.workload} has {blocks} blocks, too few for {stages} stages{each}",
            hint="use fewer stages, or a deeper model" if blocks else whole,
        )
    batches, batch = spec.pipeline_micro_batches, spec.batch
    assert batch is not None
    if batch % batches:
        raise SpecError(
            f"batch {batch} does not divide into {batches} micro_batches",
            hint=f"for example micro_batches = {_divisor(batch, batches)}",
        )
    if batches < spec.degrees.pipeline or (spec.rounds > 1 and batches % spec.degrees.pipeline):
        raise SpecError(
            f"{batches} micro_batches do not keep {spec.degrees.pipeline} stages busy",
            hint="use a multiple of the stages, and a batch that it divides",
        )
    if spec.remainder == "short":
        raise SpecError(
            "a pipeline cannot take a batch that is shorter than the others",
            hint='write remainder = "drop" or "pad"',
        )


def _divisor(number: int, most: int) -> int:
    """Return the largest divisor that is not above ``most``.

    >>> _divisor(12, 8)
    6
    """
    return next(each for each in range(min(most, number), 0, -1) if number % each == 0)
