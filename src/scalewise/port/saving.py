"""Step 6: only rank 0 writes files, and saved models have no DistributedDataParallel wrapper."""

import ast
import re
from collections.abc import Sequence

from scalewise.port.file_writes import file_mode, guardable_statement, write_calls
from scalewise.port.name_tracking import last_name
from scalewise.port.patch import Edit, Step
from scalewise.port.serial_script import Script
from scalewise.port.wrapping import MODULE_ATTRIBUTES, PARALLEL_WRAPPERS, wrapped_models

RANK_NAMES = re.compile(r"(^|_)rank|main_process|is_main|master", re.IGNORECASE)


def save_once(script: Script) -> Step:
    """Let only rank 0 save, and save the model without its wrapper."""
    name = "saving once"
    unwrap_edits = unwrap_models(script)
    statements = saving_statements(script)
    # Writes that are no statement of their own, such as f = open(path, "w").
    open_calls = [call for call in write_calls(script) if not guardable_statement(script, call)]
    if not statements and not open_calls:
        return Step(name, "not needed", "nothing is saved", tuple(unwrap_edits))
    unguarded = [node for node in statements if not _is_rank_guarded(script, node)]
    unguarded_calls = [call for call in open_calls if not _is_for_one_rank(script, call)]
    if not [*unguarded, *unwrap_edits, *unguarded_calls]:
        line = _lines([*statements, *open_calls]).partition(",")[0]
        return Step(name, "there", f"line {line}: one rank saves")
    edits = [*unwrap_edits, *_wait_before_load(script)]
    for statement in unguarded:
        edits += _guard_statement(script, statement)
    left_by_hand = []
    for call in unguarded_calls:
        if edit := _write_to_devnull(script, call):
            edits.append(edit)
        else:
            left_by_hand.append(call)
    if left_by_hand:
        message = "every rank would write; let rank 0 alone do it, if RANK == 0"
        return Step(name, "by hand", f"line {_lines(left_by_hand)}: {message}", tuple(edits))
    lines = _lines([*unguarded, *unguarded_calls])
    message = "every rank would save" if lines else "names would begin with module."
    return Step(name, "missing", f"line {lines or _lines(statements)}: {message}", tuple(edits))


def _lines(nodes: Sequence[ast.stmt | ast.expr]) -> str:
    return ", ".join(str(line) for line in sorted(node.lineno for node in nodes))


def _wait_before_load(script: Script) -> list[Edit]:
    """Add a barrier before a checkpoint is read that rank 0 wrote earlier in the script."""
    saves = {
        script.source.text_of(call.args[1]): call
        for call in script.calls("save")
        if script.names.full_name(call) == "torch.save" and len(call.args) > 1
    }
    edits = []
    for call in script.calls("load"):
        save = saves.get(script.source.text_of(call.args[0])) if call.args else None
        if save and script.names.full_name(call) == "torch.load" and call.lineno > save.lineno:
            lines = ["if WORLD_SIZE > 1:", "    dist.barrier()  # Rank 0 may still be saving."]
            edits.append(script.source.insert_before(script.statement(call), lines))
    return edits


def _guard_statement(script: Script, statement: ast.stmt) -> list[Edit]:
    """Run a statement only on rank 0; extend the ``if`` that contains only this statement."""
    source = script.source
    if not (source.begins_line(statement) and source.ends_line(statement)):
        start = source.span(statement)[0]
        return [Edit(start, start, "RANK == 0 and ")]
    parent = script.names.parent[statement]
    if (
        isinstance(parent, ast.If)
        and parent.body == [statement]
        and not parent.orelse
        and source.begins_line(parent)
    ):
        test = source.text_of(parent.test)
        is_or = isinstance(parent.test, ast.BoolOp) and isinstance(parent.test.op, ast.Or)
        if is_or or isinstance(parent.test, ast.IfExp | ast.Lambda | ast.NamedExpr):
            test = f"({test})"  # These bind less tightly than "and".
        return [source.replace(parent.test, f"{test} and RANK == 0")]
    guard = source.insert_before(statement, ["if RANK == 0:"])
    return [guard, *source.indent_statement(statement)]


def saving_statements(script: Script) -> list[ast.stmt]:
    """Return the statements that write a file and can be left to rank 0, by line."""
    statements = {guardable_statement(script, call) for call in write_calls(script)}
    return sorted((node for node in statements if node), key=lambda node: node.lineno)


def _write_to_devnull(script: Script, call: ast.Call) -> Edit | None:
    """Let the other ranks open ``os.devnull`` if the file stays open beyond one statement."""
    path = call.args[0] if call.args else None
    mode = file_mode(script, call)
    if not path or script.names.full_name(call) != "open" or not re.fullmatch("[wabt]+", mode):
        return None
    text = script.source.text_of(path)
    return script.source.replace(path, f"{text} if RANK == 0 else os.devnull")


def _is_rank_guarded(script: Script, node: ast.stmt) -> bool:
    """Return whether an ``if`` around a statement, or an ``and`` in it, tests the rank."""
    tests = [outer.test for outer in script.names.ancestors(node) if isinstance(outer, ast.If)]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.BoolOp):
        tests.append(node.value.values[0])
    return any(map(_mentions_rank, tests))


def unwrap_models(script: Script) -> list[Edit]:
    """Replace ``model`` by ``unwrapped(model)`` where it is saved or its own attributes are used.

    If the script wraps the model itself, only saving is changed, and only for
    DistributedDataParallel: other wrappers have their own ways to save.
    """
    wrappers = {last_name(call) for call in script.calls(*PARALLEL_WRAPPERS)}
    is_other = wrappers - {"DistributedDataParallel", "DDP"}
    if is_other or (wrappers and not saving_statements(script)):
        return []
    edits = []
    for model, statement in wrapped_models(script):
        for node in _reads_after(script, statement):
            parent = script.names.parent[node]
            if wrappers and getattr(parent, "attr", "") != "state_dict":
                continue
            if script.names.variable(node) in model.aliases and _needs_unwrapping(script, parent):
                text = f"unwrapped({script.source.text_of(node)})"
                edits.append(script.source.replace(node, text))
    return list(dict.fromkeys(edits))  # Two models may be passed to the same function.


def _reads_after(script: Script, statement: ast.stmt) -> list[ast.Name | ast.Attribute]:
    """Return the names that are read in another function, or after a statement in its own."""
    scope, end = script.names.scope(statement), statement.end_lineno or 0
    return [
        node
        for node in script.names.nodes
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and (node.lineno > end or script.names.scope(node) is not scope)
    ]


def _needs_unwrapping(script: Script, parent: ast.AST) -> bool:
    """Return whether the parent of a model's name uses what the wrapper does not offer."""
    if isinstance(parent, ast.Attribute):
        return parent.attr not in MODULE_ATTRIBUTES
    savers = ("torch.save", "torch.jit.save")
    return isinstance(parent, ast.Call) and script.names.full_name(parent) in savers


def _is_for_one_rank(script: Script, call: ast.Call) -> bool:
    """Return whether the arguments of a write, or a condition around it, mention the rank."""
    return any(map(_mentions_rank, call.args)) or _is_rank_guarded(script, script.statement(call))


def _mentions_rank(expression: ast.AST) -> bool:
    names = (
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(expression)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return any(map(RANK_NAMES.search, names))
