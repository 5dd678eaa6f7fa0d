"""Means over the training data: a rank's sum is to be divided by a rank's samples."""

import ast
from collections.abc import Iterator

from scalewise.port.loss_dataflow import Differing
from scalewise.port.name_tracking import Place, dotted, last_name
from scalewise.port.patch import Edit
from scalewise.port.serial_script import Loader, Script

NUMBERS = {"float", "int", "max"}
BARE = {"item", "detach", "cpu", "float"}


def mended(script: Script, loader: Loader) -> list[Edit]:
    """Count this rank's samples where a mean over the training data is taken."""
    edits = [edit for _, edit in means(script, loader) if edit]
    for call in script.calls("len"):
        what = call.args[0] if call.args else None
        if not isinstance(what, ast.Attribute) or what.attr != "dataset":
            continue
        _, divided = _division(script, call)
        counts_steps = divided is not None and _holds(divided, call)
        # A length that is divided counts steps, and these stay as many as they were.
        same = script.names.place(what.value) in loader.places and _is_exact(script, what)
        stays = counts_steps or (divided is not None and _adds_batches(script, divided))
        if same and not stays:
            edits.append(script.source.replace(what, f"{script.source.of(what.value)}.sampler"))
    return edits


def means(script: Script, loader: Loader) -> Iterator[tuple[int, Edit | None]]:
    """Yield each mean over all the training data: its line, and the edit that mends it."""
    whole, differing = _datasets(script, loader), Differing(script)
    for call in script.calls("len"):
        what = call.args[0] if call.args else None
        place = script.names.place(what)
        batches = place in loader.places
        if not what or not (batches or place in whole):
            continue
        for divisor in _uses(script, call):
            division, divided = _division(script, divisor)
            if not divided or _holds(divided, divisor) or not differing.differs(divided):
                continue
            if _adds_batches(script, divided):
                continue
            name = _visible(script, loader, call)
            factor = script.names.parent[divisor]
            if batches and (factor is division or not isinstance(factor, ast.BinOp)):
                continue  # There are as many batches as before; only a factor is their size.
            if batches:
                yield divisor.lineno, None
            elif name and divisor is call and _is_exact(script, what):
                yield call.lineno, script.source.replace(what, f"{name}.sampler")
            else:
                yield divisor.lineno, None


def _datasets(script: Script, loader: Loader) -> set[Place]:
    """Return the places of a loader's dataset, and of the tensors that it consists of."""
    names = script.names
    dataset = loader.argument("dataset", 0)
    found = {
        each for place in names.comes_from(names.place(dataset)) for each in names.known_as(place)
    }
    calls = [
        dataset,
        *(value for target, value in names.assignments() if names.place(target) in found),
    ]
    for call in calls:
        if isinstance(call, ast.Call) and names.last(call) == "TensorDataset":
            found |= {place for each in call.args if (place := names.place(each))}
    return found


def _uses(script: Script, call: ast.Call) -> Iterator[ast.expr]:
    """Yield a call, and every read of the name that holds what it returns."""
    yield call
    held = script.names.held(call)
    for node in script.names.nodes:
        read = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
        if held and read and isinstance(node, ast.expr) and script.names.place(node) == held:
            yield node


def _division(script: Script, node: ast.AST) -> tuple[ast.AST | None, ast.AST | None]:
    """Return the division around a number, past factors and ``float(…)``, and its dividend."""
    for each in script.names.above(node):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div | ast.FloorDiv):
            return each, each.left
        if isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Div | ast.FloorDiv):
            return each, each.target
        factor = isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult)
        if not factor and not (isinstance(each, ast.Call) and last_name(each) in NUMBERS):
            break
    return None, None


def _adds_batches(script: Script, total: ast.AST) -> bool:
    """Say whether a total is one mean loss per batch: of these, a rank has as many as before."""
    names = script.names
    totals = {place for node in ast.walk(total) if (place := names.place(node))}
    added = [
        node.value
        for node in names.nodes
        if isinstance(node, ast.AugAssign) and names.place(node.target) in totals
        and isinstance(node.op, ast.Add)
    ]  # fmt: skip
    added += [
        call.args[0]
        for call in script.calls("append")
        if isinstance(call.func, ast.Attribute) and names.place(call.func.value) in totals
        and call.args
    ]  # fmt: skip
    return bool(added) and all(_is_mean_loss(script, each) for each in added)


def _is_mean_loss(script: Script, value: ast.expr) -> bool:
    """Say whether a value is the loss of one batch, neither weighted nor summed."""
    while isinstance(value, ast.Call):
        inner = value.func.value if isinstance(value.func, ast.Attribute) else None
        if last_name(value) not in BARE or not (inner or value.args):
            return False
        value = inner or value.args[0]
    place = script.names.place(value)
    trained = {
        script.names.place(each)
        for call in script.backwards
        if isinstance(call.func, ast.Attribute)
        for each in ast.walk(call.func.value)
    }
    made = [given for target, given in script.names.assignments()
            if place and script.names.place(target) == place]  # fmt: skip
    return place is not None and place in trained and not any(_sums(script, each) for each in made)


def _sums(script: Script, loss: ast.expr) -> bool:
    """Say whether a loss is a sum over its batch: ``.sum()``, or ``reduction="sum"``."""
    calls = [node for node in ast.walk(loss) if isinstance(node, ast.Call)]
    called = {script.names.place(call.func) for call in calls}
    calls += [
        given
        for target, given in script.names.assignments()
        if script.names.place(target) in called and isinstance(given, ast.Call)
    ]
    options = [each.value for call in calls for each in call.keywords if each.arg == "reduction"]
    summed = any(isinstance(each, ast.Constant) and each.value == "sum" for each in options)
    return summed or any(last_name(call) == "sum" for call in calls)


def _is_exact(script: Script, node: ast.expr) -> bool:
    """Say whether a name lies where the tree says; in some f-strings it did not before 3.12."""
    return script.source.of(node) == dotted(node)


def _holds(whole: ast.AST, part: ast.AST) -> bool:
    return any(each is part for each in ast.walk(whole))


def _visible(script: Script, loader: Loader, node: ast.AST) -> str:
    """Return a name of the training loader that can be used beside a node."""
    scope = script.names.scope(node)
    holder = script.names.owner(scope)
    names = sorted(
        written_as(each)
        for each in loader.places - script.names.bars
        if each[0] in (scope, holder, script.names.tree) and not each[1].startswith("return")
    )
    likely = [each for each in names if "train" in each.lower()]
    return next(iter(likely if loader.built > 1 else names), "")


def written_as(place: Place) -> str:
    """Return how a place is spoken of inside its own scope."""
    return f"self.{place[1]}" if isinstance(place[0], ast.ClassDef) else place[1]
