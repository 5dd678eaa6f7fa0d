"""Find exits from training that depend on the loss: each rank would leave at another step."""

import ast

from scalewise.port.loss_dataflow import RankDifferences
from scalewise.port.serial_script import Script

EXITS = {"sys.exit", "exit", "quit", "os._exit", "SystemExit"}


def early_exits(script: Script) -> list[int]:
    """Return the lines at which a rank would stop training while others continue."""
    differences = RankDifferences(script)
    exits = [
        node.lineno
        for node in script.names.nodes
        if isinstance(node, ast.Break | ast.Return | ast.Raise | ast.Expr)
        and any(map(differences.differs, differences.conditions(node)))
        and _ends_training(script, node)
    ]
    loops = [
        loop.lineno
        for loop in script.training_loops
        if isinstance(loop, ast.While) and differences.differs(loop.test)
    ]
    return sorted({*exits, *loops})


def _ends_training(script: Script, node: ast.stmt) -> bool:
    """Return whether a statement leaves a training loop, or a function before it has trained."""
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
