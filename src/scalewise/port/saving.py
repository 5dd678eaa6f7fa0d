"""Step 6: only rank 0 writes files, and saved models have no DistributedDataParallel wrapper."""

import ast
import re
from collections.abc import Sequence

from scalewise.port.name_tracking import keyword_value, last_name
from scalewise.port.patch import Edit, Step
from scalewise.port.serial_script import Script
from scalewise.port.wrapping import MODULE_ATTRIBUTES, PARALLEL_WRAPPERS, wrapped_models

RANK_NAMES = re.compile(r"(^|_)rank|main_process|is_main|master", re.IGNORECASE)
"""Names in conditions that let only one rank run a statement."""
SAVE_FUNCTIONS = {
    "torch.save", "torch.jit.save", "numpy.save", "numpy.savez", "numpy.savez_compressed",
    "numpy.savetxt", "np.save", "np.savez", "np.savetxt", "json.dump", "pickle.dump",
    "joblib.dump", "plt.savefig", "torchvision.utils.save_image", "safetensors.torch.save_file",
    "cv2.imwrite",
}  # fmt: skip
SAVE_METHODS = {
    "to_csv", "to_parquet", "to_pickle", "savefig", "save_pretrained", "write_text", "write_bytes",
    "tofile",
}  # fmt: skip
OPEN_FUNCTIONS = {"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"}
"""Functions whose second parameter is the mode; of ``Path.open`` it is the first."""


def saving_step(script: Script) -> Step:
    """Return the step by which only rank 0 saves, and saves the model without its wrapper."""
    name = "saving once"
    statement_of = {call: _guardable_statement(script, call) for call in _write_calls(script)}
    statements = sorted({node for node in statement_of.values() if node}, key=lambda n: n.lineno)
    # Calls inside of a statement that every rank has to run, such as f = open(path, "w").
    inner_calls = [call for call, statement in statement_of.items() if not statement]
    unwrap_edits = _unwrap_models(script, saves=bool(statements))
    if not statement_of:
        return Step(name, "not needed", "nothing is saved", tuple(unwrap_edits))
    unguarded_statements = [node for node in statements if not _is_rank_guarded(script, node)]
    unguarded_calls = [
        call
        for call in inner_calls
        if not any(map(_mentions_rank, call.args))
        and not _is_rank_guarded(script, script.statement(call))
    ]
    if not [*unguarded_statements, *unwrap_edits, *unguarded_calls]:
        nodes: list[ast.stmt | ast.expr] = [*statements, *inner_calls]
        line = min(node.lineno for node in nodes)
        return Step(name, "present", f"line {line}: only one rank saves")
    edits = [*unwrap_edits, *_wait_before_load(script)]
    for statement in unguarded_statements:
        edits += _guard_statement(script, statement)
    devnull_edits = {call: _write_to_devnull(script, call) for call in unguarded_calls}
    edits += filter(None, devnull_edits.values())
    if by_hand := [call for call, edit in devnull_edits.items() if not edit]:
        message = "every rank would write; write on rank 0 only, with if RANK == 0"
        return Step(name, "by hand", f"line {_line_numbers(by_hand)}: {message}", tuple(edits))
    lines = _line_numbers([*unguarded_statements, *unguarded_calls])
    message = "every rank would save" if lines else "saved names would begin with module."
    return Step(
        name, "missing", f"line {lines or _line_numbers(statements)}: {message}", tuple(edits)
    )


def _line_numbers(nodes: Sequence[ast.stmt | ast.expr]) -> str:
    return ", ".join(str(line) for line in sorted(node.lineno for node in nodes))


def _write_calls(script: Script) -> list[ast.Call]:
    """Return the calls that write a file, or open one to write, append or create it."""
    calls = []
    for call in script.names.calls():
        mode = _file_mode(script, call) if last_name(call) == "open" else ""
        opens = re.fullmatch("[rwaxbt+]+", mode) and re.search("[wax+]", mode)
        saves = script.names.full_name(call) in SAVE_FUNCTIONS or last_name(call) in SAVE_METHODS
        if saves or opens:
            calls.append(call)
    return calls


def _file_mode(script: Script, call: ast.Call) -> str:
    """Return the mode in which a call opens a file; empty if the mode is not a literal."""
    position = 1 if script.names.full_name(call) in OPEN_FUNCTIONS else 0
    mode = keyword_value(call, "mode") or next(iter(call.args[position : position + 1]), None)
    return str(mode.value) if isinstance(mode, ast.Constant) else ""


def _guardable_statement(script: Script, call: ast.Call) -> ast.stmt | None:
    """Return a statement around a write that ranks above 0 can skip; None if there is none."""
    ancestors = list(script.names.ancestors(call))
    statements = [node for node in ancestors if isinstance(node, ast.stmt)]
    for node in reversed(statements):  # The outermost ``with open(…)`` that can be skipped.
        opens_file = isinstance(node, ast.With) and any(
            isinstance(item.context_expr, ast.Call) and last_name(item.context_expr) == "open"
            for item in node.items
        )
        if opens_file and _can_be_skipped(script, node):
            return node
    in_lambda = any(isinstance(node, ast.Lambda) for node in ancestors)
    return statements[0] if isinstance(statements[0], ast.Expr) and not in_lambda else None


def _can_be_skipped(script: Script, block: ast.stmt) -> bool:
    """Return whether ranks above 0 can skip a block: it neither trains nor sets values read later.

    Calling the model counts as training, because all ranks have to take part in its collectives.
    """
    variable_of, nodes = script.names.variable, set(ast.walk(block))
    if script.trains(block) or any(
        isinstance(node, ast.Return | ast.Yield | ast.Break | ast.Continue)
        or (isinstance(node, ast.Call) and variable_of(node.func) in script.model_variables)
        for node in nodes
    ):
        return False
    files = {variable_of(node.optional_vars) for node in nodes if isinstance(node, ast.withitem)}
    assigned = {
        variable_of(node)
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
    } - files
    reads = (node for node in script.names.reads if node not in nodes)
    return not any(variable_of(node) in assigned for node in reads)


def _wait_before_load(script: Script) -> list[Edit]:
    """Return edits that add a barrier before the script loads a checkpoint that rank 0 saved."""
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
    """Return edits that run a statement on rank 0 only, in a new ``if`` or in the one around it."""
    source = script.source
    if not (source.begins_line(statement) and source.ends_line(statement)):  # As in a; b.
        start = source.span(statement)[0]
        return [Edit(start, start, "RANK == 0 and ")]
    parent = script.names.parent[statement]
    is_in_if = isinstance(parent, ast.If) and parent.body == [statement] and not parent.orelse
    if isinstance(parent, ast.If) and is_in_if and source.begins_line(parent):
        test = source.text_of(parent.test)
        is_or = isinstance(parent.test, ast.BoolOp) and isinstance(parent.test.op, ast.Or)
        if is_or or isinstance(parent.test, ast.IfExp | ast.Lambda | ast.NamedExpr):
            test = f"({test})"  # These bind less tightly than "and".
        return [source.replace(parent.test, f"{test} and RANK == 0")]
    guard = source.insert_before(statement, ["if RANK == 0:"])
    return [guard, *source.indent_statement(statement)]


def _write_to_devnull(script: Script, call: ast.Call) -> Edit | None:
    """Return the edit after which ranks above 0 open ``os.devnull``; None if that cannot work."""
    path = call.args[0] if call.args else None
    mode = _file_mode(script, call)
    # os.devnull has nothing to read (mode r or +), and exists already (mode x).
    if not path or script.names.full_name(call) != "open" or not re.fullmatch("[wabt]+", mode):
        return None
    text = script.source.text_of(path)
    return script.source.replace(path, f"{text} if RANK == 0 else os.devnull")


def _is_rank_guarded(script: Script, node: ast.stmt) -> bool:
    """Return whether the rank is tested by an ``if`` around a statement or as ``RANK == 0 and``."""
    tests = [outer.test for outer in script.names.ancestors(node) if isinstance(outer, ast.If)]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.BoolOp):
        tests.append(node.value.values[0])
    return any(map(_mentions_rank, tests))


def _mentions_rank(expression: ast.AST) -> bool:
    names = (
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(expression)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return any(map(RANK_NAMES.search, names))


def _unwrap_models(script: Script, *, saves: bool) -> list[Edit]:
    """Return edits from ``model`` to ``unwrapped(model)`` where it is saved or needs unwrapping.

    ``model.hidden_size`` needs it: the wrapper lacks the model's own attributes. In a script that
    wraps its models with DDP itself, only ``model.state_dict`` is edited, and only if it saves.
    """
    wrappers = {last_name(call) for call in script.calls(*PARALLEL_WRAPPERS)}
    other_wrappers = wrappers - {"DistributedDataParallel", "DDP"}
    if other_wrappers or (wrappers and not saves):
        return []
    edits = []
    for model, statement in wrapped_models(script):
        scope, end = script.names.scope(statement), statement.end_lineno or 0
        for node in script.names.reads:
            if node.lineno <= end and script.names.scope(node) is scope:
                continue  # The model is not wrapped yet.
            parent = script.names.parent[node]
            if wrappers and getattr(parent, "attr", "") != "state_dict":
                continue
            if isinstance(parent, ast.Attribute):
                needs_unwrapping = parent.attr not in MODULE_ATTRIBUTES
            else:
                full_name = script.names.full_name(parent)
                needs_unwrapping = full_name in ("torch.save", "torch.jit.save")
            if needs_unwrapping and script.names.variable(node) in model.aliases:
                text = f"unwrapped({script.source.text_of(node)})"
                edits.append(script.source.replace(node, text))
    return list(dict.fromkeys(edits))  # Models that share an alias give the same edit twice.
