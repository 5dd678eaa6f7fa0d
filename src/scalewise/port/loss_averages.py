"""Find averages over the training data, and divide a rank's sum by that rank's own samples."""

import ast
from collections.abc import Iterator

from scalewise.port.loss_dataflow import RankDifferences
from scalewise.port.name_tracking import Variable, dotted_name, keyword_value, last_name
from scalewise.port.patch import Edit
from scalewise.port.serial_script import Loader, Script

# Calls that return the number or the scalar loss they get: float(n), loss.item().
NUMBER_FUNCTIONS = {"float", "int", "max"}
SCALAR_METHODS = {"item", "detach", "cpu", "float"}


def fix_averages(script: Script, loader: Loader) -> list[Edit]:
    """Return edits after which averages over the training data divide by this rank's samples."""
    edits = [edit for _, edit in loss_averages(script, loader) if edit]
    for call in script.calls("len"):
        collection = call.args[0] if call.args else None
        if not isinstance(collection, ast.Attribute) or collection.attr != "dataset":
            continue
        if script.names.variable(collection.value) not in loader.aliases:
            continue
        _, dividend = _division(script, call)
        # Steps per epoch, len(loader.dataset) / batch_size, and sums of batch means do not change.
        keeps_length = dividend is not None and (
            _contains(dividend, call) or _sums_batch_means(script, dividend)
        )
        if _has_right_offsets(script, collection) and not keeps_length:
            loader_name = script.source.text_of(collection.value)
            edits.append(script.source.replace(collection, f"{loader_name}.sampler"))
    return edits


def loss_averages(script: Script, loader: Loader) -> Iterator[tuple[int, Edit | None]]:
    """Yield the line of each average that becomes wrong, and the edit that corrects it or None."""
    differences = RankDifferences(script)
    variables = loader.aliases | _dataset_variables(script, loader)
    for call in script.calls("len"):
        collection = call.args[0] if call.args else None
        if not collection or script.names.variable(collection) not in variables:
            continue
        for divisor, division in _divisions_by(script, call, differences):
            if script.names.variable(collection) in loader.aliases:
                # Each rank has as many batches as before, but smaller ones. So len(loader) is
                # still a correct divisor, but len(loader) * batch_size is not.
                product = script.names.parent[divisor]
                if product is not division and isinstance(product, ast.BinOp):
                    yield divisor.lineno, None
                continue
            names = visible_names(script, loader, call)
            if loader.build_count > 1:  # Aliases may also hold loaders for validation.
                names = [name for name in names if "train" in name.lower()]
            name = next(iter(names), "")
            is_editable = name and divisor is call and _has_right_offsets(script, collection)
            edit = script.source.replace(collection, f"{name}.sampler") if is_editable else None
            yield divisor.lineno, edit


def _divisions_by(
    script: Script, length: ast.Call, differences: RankDifferences
) -> Iterator[tuple[ast.expr, ast.AST | None]]:
    """Yield (divisor, division) where a length, or the variable it is in, divides a rank's sum."""
    names = script.names
    variable = names.first_target(length)
    reads = [node for node in names.reads if variable and names.variable(node) == variable]
    for divisor in [length, *reads]:
        division, dividend = _division(script, divisor)
        if not dividend or _contains(dividend, divisor):
            continue
        if differences.differs(dividend) and not _sums_batch_means(script, dividend):
            yield divisor, division


def _dataset_variables(script: Script, loader: Loader) -> set[Variable]:
    """Return the variables of a loader's dataset and of the tensors in its TensorDataset."""
    names = script.names
    dataset = loader.argument("dataset", 0)
    variables = {
        alias
        for source in names.sources(names.variable(dataset))
        for alias in names.aliases(source)
    }
    for value in [dataset, *names.assigned_values(variables)]:
        if isinstance(value, ast.Call) and names.short_name(value) == "TensorDataset":
            variables |= {tensor for node in value.args if (tensor := names.variable(node))}
    return variables


def _division(script: Script, node: ast.AST) -> tuple[ast.AST | None, ast.AST | None]:
    """Return the division that a number is part of, also inside ``float(…)``, and its dividend."""
    for outer in script.names.ancestors(node):
        if isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Div | ast.FloorDiv):
            return outer, outer.left
        if isinstance(outer, ast.AugAssign) and isinstance(outer.op, ast.Div | ast.FloorDiv):
            return outer, outer.target
        is_product = isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Mult)
        if not is_product and not (
            isinstance(outer, ast.Call) and last_name(outer) in NUMBER_FUNCTIONS
        ):
            break
    return None, None


def _sums_batch_means(script: Script, total: ast.AST) -> bool:
    """Return whether a total adds one mean loss per batch; a rank has as many batches as before."""
    names = script.names
    totals = {variable for node in ast.walk(total) if (variable := names.variable(node))}
    addends = [
        node.value
        for node in names.nodes
        if isinstance(node, ast.AugAssign) and names.variable(node.target) in totals
        and isinstance(node.op, ast.Add)
    ]  # fmt: skip
    addends += [
        call.args[0]
        for call in script.calls("append")
        if isinstance(call.func, ast.Attribute) and names.variable(call.func.value) in totals
        and call.args
    ]  # fmt: skip
    return bool(addends) and all(_is_mean_loss(script, addend) for addend in addends)


def _is_mean_loss(script: Script, value: ast.expr) -> bool:
    """Return whether a value is the mean loss of one batch, not the sum over its samples."""
    while isinstance(value, ast.Call):
        receiver = value.func.value if isinstance(value.func, ast.Attribute) else None
        if last_name(value) not in SCALAR_METHODS or not (receiver or value.args):
            return False
        value = receiver or value.args[0]
    variable = script.names.variable(value)
    losses = {
        script.names.variable(node)
        for call in script.backward_calls
        if isinstance(call.func, ast.Attribute)
        for node in ast.walk(call.func.value)
    }
    if variable is None or variable not in losses:
        return False
    return not any(_is_sum(script, loss) for loss in script.names.assigned_values({variable}))


def _is_sum(script: Script, loss: ast.expr) -> bool:
    """Return whether a loss is a sum over its batch: ``.sum()``, or ``reduction="sum"``."""
    calls = [node for node in ast.walk(loss) if isinstance(node, ast.Call)]
    callees = {script.names.variable(call.func) for call in calls}
    # The loss function may be an object: criterion = CrossEntropyLoss(reduction="sum").
    objects = script.names.assigned_values(callees)
    calls += [value for value in objects if isinstance(value, ast.Call)]
    reductions = [keyword_value(call, "reduction") for call in calls]
    return any(last_name(call) == "sum" for call in calls) or any(
        isinstance(reduction, ast.Constant) and reduction.value == "sum" for reduction in reductions
    )


def _has_right_offsets(script: Script, node: ast.expr) -> bool:
    """Return False for a node in an f-string that Python before 3.12 gives wrong offsets."""
    return script.source.text_of(node) == dotted_name(node)


def _contains(tree: ast.AST, part: ast.AST) -> bool:
    return any(node is part for node in ast.walk(tree))


def visible_names(script: Script, loader: Loader, node: ast.AST) -> list[str]:
    """Return the names of the training loader that are valid at a node."""
    scope = script.names.scope(node)
    scopes = (scope, script.names.owner_class(scope), script.names.tree)
    return sorted(
        name_in_scope(alias)
        for alias in loader.aliases - script.names.iterator_variables
        # An alias "return …" is a function's return value, which has no name.
        if alias[0] in scopes and not alias[1].startswith("return")
    )


def name_in_scope(variable: Variable) -> str:
    """Return how a variable is written inside its scope: ``self.name`` inside its class."""
    return f"self.{variable[1]}" if isinstance(variable[0], ast.ClassDef) else variable[1]
