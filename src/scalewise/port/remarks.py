"""What a person should know about a ported script, beyond the six steps."""

import ast
import re
from collections.abc import Callable, Iterable

from scalewise.port.data_sharding import wrong_means
from scalewise.port.early_exit import leaving
from scalewise.port.name_tracking import dotted
from scalewise.port.placement import placement
from scalewise.port.serial_script import Script
from scalewise.port.wrapping import MODULE

WATCHERS = (".SummaryWriter", ".wandb.init", ".mlflow.start_run")


def remarks(script: Script) -> list[str]:
    """Return one sentence for each thing that is no error, but differs on many ranks."""
    every: list[Callable[[Script], Iterable[str]]] = [
        _device, _normalization, _other_calls, _seed, _downloads, _watchers, _leaving, _means,
        _old,
    ]  # fmt: skip
    return [each for kind in every for each in kind(script)]


def _device(script: Script) -> Iterable[str]:
    if placement(script).on_cpu:
        yield "It trains on the CPU; for GPUs, first move model and batches with .to(device)."


def _normalization(script: Script) -> Iterable[str]:
    found = [
        each for each in script.names.calls() if re.match("BatchNorm", script.names.last(each))
    ]
    if found:
        yield (
            f"Line {found[0].lineno}: BatchNorm sees only its rank's part of the batch; if that "
            "is small, torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before the wrapping."
        )


def _other_calls(script: Script) -> Iterable[str]:
    places = {place for model in script.models for place in model.places}
    for call in script.names.calls():
        if not isinstance(call.func, ast.Attribute) or call.func.attr in MODULE:
            continue
        own = script.names.place(call.func.value) in places
        trains = script.names.scope(call) in script.training_functions or any(
            each in script.loops for each in script.names.above(call)
        )
        if own and trains and "state_dict" not in call.func.attr:
            yield (
                f"Line {call.lineno}: gradients are averaged only after model(…) is called; "
                f"if {dotted(call.func)} computes the loss, let the model's forward do it."
            )


def _seed(script: Script) -> Iterable[str]:
    if not script.calls("manual_seed", "seed_everything"):
        yield "No seed is set: data that is made or split at random would differ between ranks."


def _downloads(script: Script) -> Iterable[str]:
    for call in script.names.calls():
        given = [each.value for each in call.keywords if each.arg == "download"]
        if given and isinstance(given[0], ast.Constant) and given[0].value is True:
            yield f"Line {call.lineno}: every rank would download; run it once alone before."
            return


def _watchers(script: Script) -> Iterable[str]:
    for call in script.names.calls():
        if f".{script.names.full(call)}".endswith(WATCHERS):
            name = dotted(call.func)
            yield f"Line {call.lineno}: {name} runs on every rank; let rank 0 alone keep track."


def _leaving(script: Script) -> Iterable[str]:
    for line in leaving(script):
        yield (
            f"Line {line}: each rank has a training loss of its own; all must leave the loop "
            "together, or those that stay wait for ever; agree first, with dist.all_reduce."
        )


def _means(script: Script) -> Iterable[str]:
    for line in wrong_means(script):
        yield (
            f"Line {line}: a sum over the training data covers one rank's share of it; divide "
            "it by len(loader.sampler), the number of samples that this rank reads."
        )


def _old(script: Script) -> Iterable[str]:
    for call in script.calls("DataParallel"):
        yield f"Line {call.lineno}: DataParallel is one process for all devices; take it out."
    for call in script.calls("spawn"):
        yield f"Line {call.lineno}: torchrun starts the processes; take the spawning out."
