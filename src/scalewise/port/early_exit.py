"""Where training is left on a training loss: each rank would leave at its own moment."""

import ast

from scalewise.port.loss_dataflow import Differing
from scalewise.port.serial_script import Script

EXITS = {"sys.exit", "exit", "quit", "os._exit", "SystemExit"}


def leaving(script: Script) -> list[int]:
    """Return the lines at which a rank would leave while others train on."""
    differing = Differing(script)
    ways = [
        node.lineno
        for node in script.names.nodes
        if isinstance(node, ast.Break | ast.Return | ast.Raise | ast.Expr)
        and any(map(differing.differs, differing.conditions(node)))
        and _leaves(script, node)
    ]
    turns = [
        loop.lineno
        for loop in script.loops
        if isinstance(loop, ast.While) and differing.differs(loop.test)
    ]
    return sorted({*ways, *turns})


def _leaves(script: Script, node: ast.stmt) -> bool:
    """Say whether a statement ends training before its time."""
    if isinstance(node, ast.Break):
        loops = (each for each in script.names.above(node) if isinstance(each, ast.For | ast.While))
        return next(loops, None) in script.loops
    what = node.exc if isinstance(node, ast.Raise) else getattr(node, "value", None)
    ends = isinstance(node, ast.Return) or (what and script.names.full(what) in EXITS)
    return bool(ends) and _trains_on(script, node)


def _trains_on(script: Script, node: ast.stmt) -> bool:
    """Say whether training would go on after a statement of the same function."""
    if any(each in script.loops for each in script.names.above(node)):
        return True
    scope = script.names.scope(node)
    return any(
        call in script.backwards or script.names.local(call) in script.training_functions
        for call in script.names.calls()
        if call.lineno > node.lineno and script.names.scope(call) is scope
    )
