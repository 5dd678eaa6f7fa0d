"""Step 5: wrap the model in DistributedDataParallel; ``backward()`` then averages gradients."""

import ast

from scalewise.port.name_tracking import argument_values, last_name
from scalewise.port.patch import Step
from scalewise.port.serial_script import Model, Script

MODULE_ATTRIBUTES = set(dir(object)) | {
    "train", "eval", "training", "parameters", "named_parameters", "buffers", "named_buffers",
    "modules", "named_modules", "children", "named_children", "zero_grad", "to", "cuda", "cpu",
    "apply", "requires_grad_", "forward", "module", "no_sync", "float", "double", "half",
    "bfloat16", "share_memory", "compile", "register_forward_hook", "join",
}  # fmt: skip
"""Attributes that work on a wrapped model in the same way as on the model itself."""
PARALLEL_WRAPPERS = (
    "DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard",
)  # fmt: skip
CHANGING_METHODS = {"to", "cuda", "apply", "requires_grad_", "float", "double", "half", "bfloat16"}
"""Methods that change a model: the model has to be wrapped after such a call."""


def wrapping_step(script: Script) -> Step:
    """Return the step that wraps the model: ``backward()`` then averages over all ranks."""
    name = "wrapped model"
    if calls := script.calls(*PARALLEL_WRAPPERS):
        return Step(name, "present", f"line {calls[0].lineno}: {last_name(calls[0])}")
    if not script.models:
        message = "found no model whose parameters an optimizer gets; wrap it where it is made: "
        return Step(name, "by hand", message + "model = DistributedDataParallel(model)")
    edits = []
    for model, statement in wrapped_models(script):
        # A loader's worker process imports the script, runs all that is outside of the main guard,
        # and has no process group.
        runs_in_worker = main_guard(script) and runs_on_import(script, statement)
        condition = "dist.is_initialized()" if runs_in_worker else "WORLD_SIZE > 1"
        lines = [f"if {condition}:", f"    {model.name} = DistributedDataParallel({model.name})"]
        edits.append(script.source.insert_after(statement, lines))
    models = ", ".join(f"{model.name} of line {model.statement.lineno}" for model in script.models)
    return Step(name, "missing", f"{models}: gradients are not averaged", tuple(edits))


def _last_preparation(script: Script, model: Model) -> ast.stmt:
    """Return the last statement that creates or changes a model before it is used or trained."""
    block = script.siblings(model.statement)
    last = model.statement
    for statement in block[block.index(model.statement) + 1 :]:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            continue
        if _uses_model(script, statement, model):
            break
        if _prepares_model(script, statement, model):
            last = statement
    return last


def _uses_model(script: Script, statement: ast.stmt, model: Model) -> bool:
    """Return whether a statement trains, returns, or calls the model or passes it to a function."""
    names = script.names
    for node in ast.walk(statement):
        if isinstance(node, ast.Return):
            return True
        if isinstance(node, ast.Call):
            passed = argument_values(node) if names.callee(node) else []
            used = [node.func, *map(names.unwrap, passed)]
            if model.aliases.intersection(map(names.variable, used)):
                return True
    return script.trains(statement)


def _prepares_model(script: Script, statement: ast.stmt, model: Model) -> bool:
    """Return whether a statement assigns the model or uses an attribute that may change it."""
    unchanging = MODULE_ATTRIBUTES - CHANGING_METHODS
    for node in ast.walk(statement):
        if (
            isinstance(node, ast.Name | ast.Attribute)
            and script.names.variable(node) in model.aliases
        ):
            parent = script.names.parent[node]
            is_changed = isinstance(parent, ast.Attribute) and parent.attr not in unchanging
            if is_changed or isinstance(node.ctx, ast.Store):
                return True
    return False


def wrapped_models(script: Script) -> list[tuple[Model, ast.stmt]]:
    """Return each model, with the statement that wraps it or after which it is to be wrapped."""
    wrapper_calls = script.calls(*PARALLEL_WRAPPERS)
    if not wrapper_calls:
        return [(model, _last_preparation(script, model)) for model in script.models]
    models: list[tuple[Model, ast.stmt]] = []
    for call in wrapper_calls:
        statement = script.statement(call)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if target and (variable := script.names.variable(target)):
            aliases = frozenset(script.names.aliases(variable))
            models.append((Model(script.source.text_of(target), statement, aliases), statement))
    return models


def main_guard(script: Script) -> ast.If | None:
    """Return ``if __name__ == "__main__":``; None if there is none or training is outside."""
    body = script.names.tree.body
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    training = [node for node in body if script.trains(node) and not isinstance(node, definitions)]
    for node in body:
        if (
            isinstance(node, ast.If)
            and "__name__" in ast.dump(node.test)
            and script.source.begins_line(node.body[0])
            and (node in training or not training)
        ):
            return node
    return None


def runs_on_import(script: Script, node: ast.AST) -> bool:
    """Return whether a node runs when the file is imported, directly or through a call."""
    guard = main_guard(script)
    pending, visited = [node], set[ast.AST]()
    while pending:
        current = pending.pop()
        scope = script.names.scope(current)
        if scope is script.names.tree:
            if guard is None or guard not in script.names.ancestors(current):
                return True
        elif scope not in visited:
            visited.add(scope)
            pending += script.names.calls_to(scope)
    return False
