"""Remarks on a ported script, beyond the six steps."""

import ast
from collections.abc import Callable, Iterable

from scalewise.port.data_sharding import wrong_averages
from scalewise.port.early_exit import early_exits
from scalewise.port.name_tracking import dotted_name, keyword_value
from scalewise.port.placement import placement
from scalewise.port.serial_script import Script, is_true
from scalewise.port.wrapping import MODULE_ATTRIBUTES

TRACKERS = (".SummaryWriter", ".wandb.init", ".mlflow.start_run")


def remarks(script: Script) -> list[str]:
    """Return a sentence for each thing that is no error, but behaves differently on many ranks."""
    functions: list[Callable[[Script], Iterable[str]]] = [
        _cpu_only, _batch_norm, _model_methods, _missing_seed, _downloads, _trackers,
        _early_exits, _averages, _old_parallelism,
    ]  # fmt: skip
    return [remark for function in functions for remark in function(script)]


def _cpu_only(script: Script) -> Iterable[str]:
    if placement(script).on_cpu:
        yield "It trains on the CPU; for GPUs, first move model and batches with .to(device)."


def _batch_norm(script: Script) -> Iterable[str]:
    for call in script.names.calls():
        if script.names.short_name(call).startswith("BatchNorm"):
            yield (
                f"Line {call.lineno}: BatchNorm sees only its rank's part of the batch; if that is "
                "small, torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before the wrapping."
            )
            return


def _model_methods(script: Script) -> Iterable[str]:
    for call in script.names.calls():
        if not isinstance(call.func, ast.Attribute) or call.func.attr in MODULE_ATTRIBUTES:
            continue
        is_of_model = script.names.variable(call.func.value) in script.model_variables
        in_training = script.names.scope(call) in script.training_functions or any(
            node in script.training_loops for node in script.names.ancestors(call)
        )
        if is_of_model and in_training and "state_dict" not in call.func.attr:
            yield (
                f"Line {call.lineno}: gradients are averaged only after model(…) is called; "
                f"if {dotted_name(call.func)} computes the loss, let the model's forward do it."
            )


def _missing_seed(script: Script) -> Iterable[str]:
    if not script.calls("manual_seed", "seed_everything"):
        yield "No seed is set: data that is made or split at random would differ between ranks."


def _downloads(script: Script) -> Iterable[str]:
    for call in script.names.calls():
        if is_true(keyword_value(call, "download")):
            yield f"Line {call.lineno}: every rank would download; run it once alone before."
            return


def _trackers(script: Script) -> Iterable[str]:
    for call in script.names.calls():
        if f".{script.names.full_name(call)}".endswith(TRACKERS):
            name = dotted_name(call.func)
            yield f"Line {call.lineno}: {name} runs on every rank; let rank 0 alone keep track."


def _early_exits(script: Script) -> Iterable[str]:
    for line in early_exits(script):
        yield (
            f"Line {line}: each rank has a training loss of its own; all must leave the loop "
            "together, or those that stay wait for ever; agree first, with dist.all_reduce."
        )


def _averages(script: Script) -> Iterable[str]:
    for line in wrong_averages(script):
        yield (
            f"Line {line}: a sum over the training data covers one rank's share of it; divide "
            "it by len(loader.sampler), the number of samples that this rank reads."
        )


def _old_parallelism(script: Script) -> Iterable[str]:
    for call in script.calls("DataParallel"):
        yield f"Line {call.lineno}: DataParallel is one process for all devices; take it out."
    for call in script.calls("spawn"):
        yield f"Line {call.lineno}: torchrun starts the processes; take the spawning out."
