"""The sixth step: one rank saves, and what it saves is the model without its wrapping."""

import ast
import re
from collections.abc import Iterator

from scalewise.port.file_writes import mode, saved_by, writers
from scalewise.port.name_tracking import last_name
from scalewise.port.patch import Edit
from scalewise.port.port_step import Step
from scalewise.port.serial_script import Script
from scalewise.port.wrapping import MODULE, PARALLEL, wrapped_where

RANKISH = re.compile(r"(^|_)rank|main_process|is_main|master", re.IGNORECASE)


def saved_once(script: Script) -> Step:
    """Let rank 0 alone save, and the model without its wrapping."""
    name = "saving once"
    bare = unwrapped(script)
    saving = saves(script)
    open_ended = [each for each in writers(script) if not saved_by(script, each)]
    free = [each for each in saving if not _by_one_rank(script, each)]
    loose = [each for each in open_ended if not _asks(script, each)]
    if not saving and not open_ended:
        return Step(name, "not needed", "nothing is saved", tuple(bare))
    if not free and not bare and not loose:
        line = min([*(each.lineno for each in saving), *(each.lineno for each in open_ended)])
        return Step(name, "there", f"line {line}: one rank saves")
    edits = [*bare, *_read_back(script)]
    for statement in free:
        edits += _guarded(script, statement)
    edits += [edit for call in loose if (edit := _nowhere(script, call))]
    if left := [each.lineno for each in loose if not _nowhere(script, each)]:
        lines = ", ".join(map(str, left))
        says = f"line {lines}: every rank would write; let rank 0 alone do it, if RANK == 0"
        return Step(name, "by hand", says, tuple(edits))
    found = sorted([*(each.lineno for each in free), *(each.lineno for each in loose)])
    lines = ", ".join(map(str, found or [each.lineno for each in saving]))
    says = "every rank would save" if free or loose else "names would begin with module."
    return Step(name, "missing", f"line {lines}: {says}", tuple(edits))


def _read_back(script: Script) -> list[Edit]:
    """Let all ranks wait for rank 0 before they read what it saved."""
    saved = {
        script.source.of(each.args[1]): each
        for each in script.calls("save")
        if script.names.full(each) == "torch.save" and len(each.args) > 1
    }
    edits = []
    for call in script.calls("load"):
        save = saved.get(script.source.of(call.args[0])) if call.args else None
        if save and script.names.full(call) == "torch.load" and call.lineno > save.lineno:
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
    found = {saved_by(script, call) for call in writers(script)}
    return sorted((each for each in found if each), key=lambda each: each.lineno)


def _nowhere(script: Script, call: ast.Call) -> Edit | None:
    """Let the other ranks write into nothing, where a file stays open over more than saving."""
    path = call.args[0] if call.args else None
    simple = script.names.full(call) == "open" and re.fullmatch("[wabt]+", mode(script, call))
    if not path or not simple:
        return None
    return script.source.replace(path, f"{script.source.of(path)} if RANK == 0 else os.devnull")


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
    return isinstance(parent, ast.Call) and script.names.full(parent) in (
        "torch.save", "torch.jit.save",
    )  # fmt: skip


def _asks(script: Script, call: ast.Call) -> bool:
    """Say whether a call that writes, or what stands around it, asks for the rank."""
    given = any(RANKISH.search(name) for each in call.args for name in _words(each))
    return given or _by_one_rank(script, script.statement(call))


def _words(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
