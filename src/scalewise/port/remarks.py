"""Remarks on a script: what the six steps do not change, but the user should know or change."""

import ast
from collections.abc import Iterator

from scalewise.port.data_sharding import wrong_averages
from scalewise.port.loss_dataflow import RankDifferences
from scalewise.port.name_tracking import dotted_name, keyword_value
from scalewise.port.placement import find_placement
from scalewise.port.serial_script import Script, is_true
from scalewise.port.wrapping import MODULE_ATTRIBUTES

TRACKERS = (".SummaryWriter", ".wandb.init", ".mlflow.start_run")  # With "." to match whole names.
EXITS = {"sys.exit", "exit", "quit", "os._exit", "SystemExit"}


def remarks(script: Script) -> Iterator[str]:
    """Yield a sentence about each part of the script that behaves differently on many ranks."""
    if find_placement(script).on_cpu:
        yield "It trains on the CPU; for GPUs, first move model and batches with .to(device)."
    calls, names = script.names.calls(), script.names
    norm_lines = [call.lineno for call in calls if names.short_name(call).startswith("BatchNorm")]
    for line in norm_lines[:1]:
        yield (
            f"Line {line}: BatchNorm sees only its rank's part of the batch; if that is small, "
            "call torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) before the model is wrapped."
        )
    for call in _model_method_calls(script):
        yield (
            f"Line {call.lineno}: gradients are averaged only after model(…) is called; "
            f"if {dotted_name(call.func)} computes the loss, let the model's forward do it."
        )
    if not script.calls("manual_seed", "seed_everything"):
        yield "No seed is set: data that is made or split at random would differ between ranks."
    downloads = [call.lineno for call in calls if is_true(keyword_value(call, "download"))]
    for line in downloads[:1]:
        yield f"Line {line}: every rank would download; first run the script once on one rank."
    for call in calls:
        if f".{names.full_name(call)}".endswith(TRACKERS):
            name = dotted_name(call.func)
            yield f"Line {call.lineno}: {name} runs on every rank; call it on rank 0 only."
    for line in _early_exits(script):
        yield (
            f"Line {line}: each rank has a training loss of its own; if only some ranks stop, the "
            "others wait for them for ever; let all agree first, with dist.all_reduce."
        )
    for line in wrong_averages(script):
        yield (
            f"Line {line}: a sum over the training data covers one rank's share of it; divide "
            "it by len(loader.sampler), the number of samples that this rank reads."
        )
    for call in script.calls("DataParallel"):
        yield f"Line {call.lineno}: DataParallel uses one process for all devices; remove it."
    for call in script.calls("spawn"):
        yield f"Line {call.lineno}: torchrun starts the processes; remove the call of spawn."


def _model_method_calls(script: Script) -> Iterator[ast.Call]:
    """Yield the calls of a model's own methods in training, other than ``model(…)``."""
    for call in script.names.calls():
        if not isinstance(call.func, ast.Attribute) or call.func.attr in MODULE_ATTRIBUTES:
            continue
        is_of_model = script.names.variable(call.func.value) in script.model_variables
        in_training = script.names.scope(call) in script.training_functions or any(
            node in script.training_loops for node in script.names.ancestors(call)
        )
        if is_of_model and in_training and "state_dict" not in call.func.attr:
            yield call


def _early_exits(script: Script) -> list[int]:
    """Return the lines at which a rank may stop training because of its own loss."""
    differences = RankDifferences(script)
    exit_lines = [
        node.lineno
        for node in script.names.nodes
        if isinstance(node, ast.Break | ast.Return | ast.Raise | ast.Expr)
        and any(map(differences.differs, differences.conditions(node)))
        and _ends_training(script, node)
    ]
    loop_lines = [
        loop.lineno
        for loop in script.training_loops
        if isinstance(loop, ast.While) and differences.differs(loop.test)
    ]
    return sorted({*exit_lines, *loop_lines})


def _ends_training(script: Script, node: ast.stmt) -> bool:
    """Return whether a statement leaves a training loop, or a function before it trains."""
    ancestors = list(script.names.ancestors(node))
    if isinstance(node, ast.Break):
        loops = (outer for outer in ancestors if isinstance(outer, ast.For | ast.While))
        return next(loops, None) in script.training_loops
    exit_call = node.exc if isinstance(node, ast.Raise) else getattr(node, "value", None)
    is_exit = exit_call and script.names.full_name(exit_call) in EXITS
    if not isinstance(node, ast.Return) and not is_exit:
        return False
    if any(outer in script.training_loops for outer in ancestors):
        return True
    scope = script.names.scope(node)
    return any(
        call in script.backward_calls or script.names.callee(call) in script.training_functions
        for call in script.names.calls()
        if call.lineno > node.lineno and script.names.scope(call) is scope
    )
