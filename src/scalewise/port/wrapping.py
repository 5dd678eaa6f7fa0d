"""The fifth step: wrap the model, so that backward averages the gradients of all ranks."""

import ast

from scalewise.port.entry import guard, outside_guard
from scalewise.port.name_tracking import last_name
from scalewise.port.port_step import Step
from scalewise.port.serial_script import Model, Script

MODULE = set(dir(object)) | {
    "train", "eval", "training", "parameters", "named_parameters", "buffers", "named_buffers",
    "modules", "named_modules", "children", "named_children", "zero_grad", "to", "cuda", "cpu",
    "apply", "requires_grad_", "forward", "module", "no_sync", "float", "double", "half",
    "bfloat16", "share_memory", "compile", "register_forward_hook", "join",
}  # fmt: skip
"""What a wrapped model answers to as the model itself does."""
PARALLEL = ("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard")
CHANGES = {"to", "cuda", "apply", "requires_grad_", "float", "double", "half", "bfloat16"}
"""What changes a model before it is wrapped."""


def wrapped_model(script: Script) -> Step:
    """Wrap the model, so that backward averages the gradients of all ranks."""
    name = "wrapped model"
    if present := script.calls(*PARALLEL):
        return Step(name, "there", f"line {present[0].lineno}: {last_name(present[0])}")
    if not script.models:
        says = "no model found whose parameters an optimizer gets; wrap it where it is made: "
        return Step(name, "by hand", says + "model = DistributedDataParallel(model)")
    edits = []
    for model in script.models:
        where = set_up(script, model)
        lines = [f"if {_many(script, where)}:"]
        lines += [f"    {model.name} = DistributedDataParallel({model.name})"]
        edits.append(script.source.after(where, lines))
    every = ", ".join(f"{each.name} of line {each.statement.lineno}" for each in script.models)
    return Step(name, "missing", f"{every}: gradients are not averaged", tuple(edits))


def _many(script: Script, where: ast.stmt) -> str:
    """Return what asks for many ranks: a loader's process may read what is outside the guard."""
    everywhere = guard(script) and outside_guard(script, where)
    return "dist.is_initialized()" if everywhere else "WORLD_SIZE > 1"


def set_up(script: Script, model: Model) -> ast.stmt:
    """Return the last statement that prepares the model before anything trains with it."""
    block = script.block(model.statement)
    last = model.statement
    for statement in block[block.index(model.statement) + 1 :]:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            continue
        if _trains(script, statement, model):
            break
        if _prepares(script, statement, model):
            last = statement
    return last


def _trains(script: Script, statement: ast.stmt, model: Model) -> bool:
    """Say whether a statement trains, or hands the model to somebody who may."""
    if script.trains(statement):
        return True
    for node in ast.walk(statement):
        if isinstance(node, ast.Return):
            return True
        if isinstance(node, ast.Call):
            given = [*node.args, *(each.value for each in node.keywords)]
            passed = any(
                script.names.place(script.names.origin(each)) in model.places for each in given
            )
            if script.names.local(node) and passed:
                return True
            if script.names.place(node.func) in model.places:
                return True
    return False


def _prepares(script: Script, statement: ast.stmt, model: Model) -> bool:
    for node in ast.walk(statement):
        known = isinstance(node, ast.Name | ast.Attribute) and (
            script.names.place(node) in model.places
        )
        if known and isinstance(getattr(node, "ctx", None), ast.Store):
            return True
        parent = script.names.parent[node]
        if known and isinstance(parent, ast.Attribute) and parent.attr in MODULE - CHANGES:
            continue
        if known and isinstance(parent, ast.Attribute):
            return True
    return False


def wrapped_where(script: Script) -> list[tuple[Model, ast.stmt]]:
    """Return each model that is or will be wrapped, with the statement after which it is."""
    present = script.calls(*PARALLEL)
    if not present:
        return [(each, set_up(script, each)) for each in script.models]
    found: list[tuple[Model, ast.stmt]] = []
    for call in present:
        statement = script.statement(call)
        if isinstance(statement, ast.Assign) and (
            place := script.names.place(statement.targets[0])
        ):
            name, places = script.source.of(statement.targets[0]), script.names.known_as(place)
            found.append((Model(name, statement, frozenset(places)), statement))
    return found
