"""The sixth step: one rank saves, and what it saves is the model without its wrapping."""

import ast
import re
from collections.abc import Iterator

from scalewise.port.names import dotted, last_name
from scalewise.port.patch import Edit
from scalewise.port.script import Script
from scalewise.port.step import Step
from scalewise.port.wrapping import MODULE, PARALLEL, wrapped_where

SAVERS = {
    "torch.save", "torch.jit.save", "np.save", "np.savez", "np.savez_compressed", "np.savetxt",
    "numpy.save", "numpy.savez", "json.dump", "pickle.dump", "joblib.dump", "plt.savefig",
}  # fmt: skip
SAVING_METHODS = {"to_csv", "savefig", "save_pretrained"}
RANKISH = re.compile(r"(^|_)rank|main_process|is_main|master", re.IGNORECASE)


def saved_once(script: Script) -> Step:
    """Let rank 0 alone save, and the model without its wrapping."""
    name = "saving once"
    bare = unwrapped(script)
    saving = saves(script)
    free = [each for each in saving if not _by_one_rank(script, each)]
    if not saving:
        return Step(name, "not needed", "nothing is saved", tuple(bare))
    if not free and not bare:
        return Step(name, "there", f"line {saving[0].lineno}: one rank saves")
    edits = [*bare, *_read_back(script)]
    for statement in free:
        edits += _guarded(script, statement)
    lines = ", ".join(str(each.lineno) for each in free or saving)
    says = "every rank would save" if free else "names would begin with module."
    return Step(name, "missing", f"line {lines}: {says}", tuple(edits))


def _read_back(script: Script) -> list[Edit]:
    """Let all ranks wait for rank 0 before they read what it saved."""
    saved = {
        script.source.of(each.args[1]): each
        for each in script.calls("save")
        if dotted(each.func) == "torch.save" and len(each.args) > 1
    }
    edits = []
    for call in script.calls("load"):
        save = saved.get(script.source.of(call.args[0])) if call.args else None
        if save and dotted(call.func) == "torch.load" and call.lineno > save.lineno:
            lines = ["if WORLD_SIZE > 1:", "    dist.barrier()  # Rank 0 may still be saving."]
            edits.append(script.source.before(script.statement(call), lines))
    return edits


def _guarded(script: Script, statement: ast.stmt) -> list[Edit]:
    """Put a statement under ``if RANK == 0``, in the condition around it where there is one."""
    if not (script.source.begins_line(statement) and script.source.ends_line(statement)):
        start = script.source.span(statement)[0]
        return [Edit(start, start, "RANK == 0 and ")]
    parent = script.names.parent[statement]
    alone = isinstance(parent, ast.If) and parent.body == [statement] and not parent.orelse
    if alone and isinstance(parent, ast.If) and script.source.begins_line(parent):
        test = script.source.of(parent.test)
        loose = isinstance(parent.test, ast.BoolOp) and isinstance(parent.test.op, ast.Or)
        if loose or isinstance(parent.test, ast.IfExp | ast.Lambda | ast.NamedExpr):
            test = f"({test})"
        return [script.source.replace(parent.test, f"{test} and RANK == 0")]
    return [script.source.before(statement, ["if RANK == 0:"]), *script.source.indented(statement)]


def saves(script: Script) -> list[ast.stmt]:
    """The statements that save something; with the file they open, if they open one."""
    found: list[ast.stmt] = []
    for call in script.names.calls():
        if not (dotted(call.func) in SAVERS or last_name(call) in SAVING_METHODS):
            continue
        nest = [each for each in script.names.above(call) if isinstance(each, ast.stmt)]
        opened = [each for each in nest if _opens(each)]
        statement = opened[-1] if opened else nest[0]
        if statement not in found and (opened or isinstance(statement, ast.Expr)):
            found.append(statement)
    return sorted(found, key=lambda each: each.lineno)


def _by_one_rank(script: Script, node: ast.stmt) -> bool:
    """Say whether an ``if`` around a statement, or an ``and`` in it, asks for the rank."""
    tests = [each.test for each in script.names.above(node) if isinstance(each, ast.If)]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.BoolOp):
        tests.append(node.value.values[0])
    return any(RANKISH.search(name) for test in tests for name in _words(test))


def unwrapped(script: Script) -> list[Edit]:
    """Reach through the wrapping wherever the model itself is meant: saving, its own parts.

    Where somebody else has wrapped it, only what is saved is looked at, and of the wrappings
    only DistributedDataParallel: others save in ways of their own.
    """
    there = {last_name(each) for each in script.calls(*PARALLEL)}
    if there and (there - {"DistributedDataParallel", "DDP"} or not saves(script)):
        return []
    edits = []
    for model, first in wrapped_where(script):
        for node in script.names.nodes:
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            same = script.names.scope(node) is script.names.scope(first)
            if same and node.lineno <= (first.end_lineno or 0):
                continue
            own = not there or getattr(script.names.parent[node], "attr", "") == "state_dict"
            if own and script.names.place(node) in model.places and _means_itself(script, node):
                edits.append(script.source.replace(node, f"unwrapped({script.source.of(node)})"))
    return list(dict.fromkeys(edits))  # Two models may come to one function.


def _means_itself(script: Script, node: ast.expr) -> bool:
    """Say whether this use of the model is of the model without its wrapping."""
    parent = script.names.parent[node]
    if isinstance(parent, ast.Attribute):
        return parent.attr not in MODULE
    return isinstance(parent, ast.Call) and dotted(parent.func) in ("torch.save", "torch.jit.save")


def _opens(node: ast.AST) -> bool:
    return isinstance(node, ast.With) and any(
        isinstance(each.context_expr, ast.Call) and last_name(each.context_expr) == "open"
        for each in node.items
    )


def _words(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
