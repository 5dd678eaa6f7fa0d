"""Check that a model can be split as a run asks, before any rank starts."""

from dataclasses import fields
from inspect import signature

import torch
from torch import nn

from scalewise import plugins
from scalewise.errors import SpecError, shown
from scalewise.frameworks.data_source import Shape, Source
from scalewise.frameworks.torch.models.parts import Parts, blocks_of, seams_of
from scalewise.frameworks.torch.parallel.batchnorm import has_batchnorm
from scalewise.frameworks.torch.parallel.ddp import Buckets
from scalewise.frameworks.torch.task import build_model
from scalewise.spec import RunSpec


def refuse_impossible(spec: RunSpec) -> None:
    """Refuse parallelism and options that this model or this batch does not support."""
    _refuse_buckets(spec)
    _refuse_strategy(spec)
    shape = Source.of_run(spec).shape
    model = _meta_model(spec, shape)
    _refuse_batchnorm(model, spec)
    _refuse_block_options(model, spec)
    if spec.degrees.tensor > 1:
        _refuse_tensor(model, spec)
    if spec.degrees.pipeline > 1:
        _refuse_pipeline(model, spec)
    if isinstance(model, Parts) and has_batchnorm(model):
        _refuse_single_value_batch(model, spec, shape)


def _is_split(spec: RunSpec) -> bool:
    # FSDP shards parameters, but every rank still computes with complete layers.
    return spec.degrees.tensor * spec.degrees.pipeline > 1


def _refuse_strategy(spec: RunSpec) -> None:
    degrees = spec.degrees
    if spec.traits.within_node and spec.topology.devices % (degrees.shard * degrees.tensor):
        raise SpecError(
            f"{spec.strategy} shards inside a node, and {degrees.shard} x tensor {degrees.tensor} "
            f"does not divide its {spec.topology.devices} devices",
            hint="leave shard out",
        )
    if not spec.traits.can_mix and _is_split(spec):
        hint = 'write strategy = "fsdp", which shards more and supports both'
        raise SpecError(f"{spec.strategy} does not go together with tensor or pipeline", hint=hint)


def _refuse_batchnorm(model: nn.Module, spec: RunSpec) -> None:
    """Refuse options that need batch norms for a model without them, and the reverse."""
    if spec.sync_batchnorm and (_is_split(spec) or not has_batchnorm(model)):
        problem = "is split" if _is_split(spec) else "has no batch normalization"
        raise SpecError(
            f"{spec.workload} {problem}, "
            "and sync_batchnorm = true needs a model with batch normalization that is not split",
            hint="leave sync_batchnorm out",
        )
    if spec.recompute == "selective" and spec.compile and has_batchnorm(model):
        raise SpecError(
            f"{spec.workload} has batch normalization, whose statistics a compiled step with "
            'recompute = "selective" would update twice',
            hint='write recompute = "full", or leave compile out',
        )


def _refuse_block_options(model: nn.Module, spec: RunSpec) -> None:
    """Refuse options that need blocks, for a model without them."""
    block_options = {"recompute": spec.recompute != "none", "compile": spec.compile == "blocks"}
    for field, is_set in block_options.items():
        if is_set and not blocks_of(model):
            setting = f"{field} = {shown(getattr(spec, field))}"
            hint = f"leave {field} out; vit, gpt, resnet50 and mlp have blocks"
            raise SpecError(f"{spec.workload} has no blocks, and {setting} needs them", hint=hint)


def _meta_model(spec: RunSpec, shape: Shape) -> nn.Module:
    """Return the run's model on the meta device, or on the CPU if its library cannot do that."""
    classes = 10  # Any number: no check depends on the number of classes.
    try:
        with torch.device("meta"):
            return build_model(spec, shape, classes)
    except SpecError:
        if not plugins.is_import_path(str(spec.workload), "torch"):
            raise
    return build_model(spec, shape, classes)


def _refuse_single_value_batch(model: Parts, spec: RunSpec, shape: Shape) -> None:
    """Refuse a batch so small that batch normalization fails, with one value for each channel."""
    assert spec.batch is not None
    if isinstance(shape, int):
        return
    samples = spec.batch // (spec.pipeline_micro_batches if spec.degrees.pipeline > 1 else 1)
    try:
        model(torch.zeros(samples, *shape, device="meta"))
    except RuntimeError:
        return  # This model cannot run on the meta device.
    except ValueError as error:
        alternative = ", or fewer micro_batches" if spec.degrees.pipeline > 1 else ""
        raise SpecError(
            f"{spec.workload} cannot normalize over a batch of {samples}: {error}",
            hint=f"use a larger batch{alternative}, or larger images",
        ) from error


def _refuse_buckets(spec: RunSpec) -> None:
    """Refuse options of DDP that the run's parallelism does not support."""
    names = [field.name for field in fields(Buckets) if field.name in spec.options]
    if names and spec.degrees.tensor > 1:
        raise SpecError(
            f"{names[0]} is a setting of DDP, which does not support layers split by tensor",
            hint=f"leave {names[0]} out",
        )
    has_micro_steps = spec.accumulate > 1 or spec.degrees.pipeline > 1
    if spec.options.get("static_graph") and has_micro_steps:
        raise SpecError(
            "static_graph does not go together with accumulate or pipeline: DDP then has "
            "backward passes without an exchange",
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
    named_layers = [pair for block in blocks_of(model) for pair in block.named_modules()]
    for name, layer in named_layers:
        units = getattr(layer, "out_features", 0) if name in seams.columns else 0
        if units % degree:
            problem = f"a layer of {spec.workload} has {units} units"
            raise SpecError(f"{problem}, which tensor {degree} does not divide")


def _refuse_pipeline(model: nn.Module, spec: RunSpec) -> None:
    from torch.distributed.pipelining import ScheduleGPipe

    # A schedule that returns its outputs, as older versions always do, hangs here.
    if "return_outputs" not in signature(ScheduleGPipe.step).parameters:
        hint = "pip install --upgrade torch"
        raise SpecError(f"a pipeline needs a newer PyTorch than {torch.__version__}", hint=hint)
    stages, blocks = spec.degrees.pipeline * spec.rounds, len(blocks_of(model))
    if seams_of(model).tied:
        raise SpecError(
            f"{spec.workload} is tied: its last layer uses the weights of its first, and a "
            "pipeline puts them on different devices",
            hint="write options = {tied = false}",
        )
    model_hint = "a pipeline is for the built-in models, and for others that are made of Parts"
    if blocks and not isinstance(model, Parts):
        problem = f"{spec.workload} does not say in which order its blocks run"
        raise SpecError(problem, hint=model_hint)
    per_device = " (two on each device)" if spec.rounds > 1 else ""
    if blocks < stages:
        raise SpecError(
            f"{spec.workload} has {blocks} blocks, too few for {stages} stages{per_device}",
            hint="use fewer stages, or a deeper model" if blocks else model_hint,
        )
    count, batch = spec.pipeline_micro_batches, spec.batch
    assert batch is not None
    if batch % count:
        divisor = next(n for n in range(min(count, batch), 0, -1) if batch % n == 0)
        hint = f"for example micro_batches = {divisor}"
        raise SpecError(f"batch {batch} does not divide into {count} micro_batches", hint=hint)
    if count < spec.degrees.pipeline or (spec.rounds > 1 and count % spec.degrees.pipeline):
        raise SpecError(
            f"{count} micro_batches do not keep {spec.degrees.pipeline} stages busy",
            hint="use a multiple of the stages as micro_batches, and a multiple of that as batch",
        )
    if spec.remainder == "short":
        hint = 'write remainder = "drop" or "pad"'
        raise SpecError("a pipeline cannot take a batch that is shorter than the others", hint=hint)
