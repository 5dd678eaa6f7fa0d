"""Where a start of the script begins: under its guard, or with its first line."""

import ast

from scalewise.port.serial_script import Script


def guard(script: Script) -> ast.If | None:
    """Return ``if __name__ == "__main__":``, unless the script trains outside of it."""
    body = script.names.tree.body
    guards = [each for each in body if isinstance(each, ast.If) and _is_guard(script, each)]
    training = [each for each in body if script.trains(each) and not _defines(each)]
    return next((each for each in guards if each in training or not training), None)


def _is_guard(script: Script, node: ast.If) -> bool:
    return "__name__" in ast.dump(node.test) and script.source.begins_line(node.body[0])


def _defines(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def outside_guard(script: Script, node: ast.AST) -> bool:
    """Say whether a node runs whenever the file is read, guarded or not, across functions."""
    main = guard(script)
    waiting, entered = [node], set[ast.AST]()
    while waiting:
        each = waiting.pop()
        scope = script.names.scope(each)
        if scope is script.names.tree:
            if main is None or main not in script.names.above(each):
                return True
        elif scope not in entered:
            entered.add(scope)
            waiting += script.names.calls_of(scope)
    return False
