"""Read a script from its file; refuse what is no PyTorch script that trains."""

import ast
import tokenize
from io import BytesIO
from pathlib import Path

from scalewise.errors import SpecError
from scalewise.launch.program import ENGINES
from scalewise.port.name_tracking import Names
from scalewise.port.patch import Source
from scalewise.port.serial_script import Script


def read(path: Path) -> Script:
    """Return what a script does; refuse what is no PyTorch script that trains."""
    try:
        encoded = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(BytesIO(encoded).readline)
        text = encoded.decode(encoding)
        tree = ast.parse(text)
    except OSError as why:
        raise SpecError(f"cannot read {path}: {why.strerror}", hint="give a script") from why
    except (SyntaxError, ValueError, RecursionError) as why:
        where = f", line {why.lineno}" if isinstance(why, SyntaxError) and why.lineno else ""
        problem = why.msg if isinstance(why, SyntaxError) else "its text cannot be read"
        hint = "give a script that runs with `python`, written in Python 3 and UTF-8,"
        hint += " or with a line that names its coding"
        raise SpecError(f"{path} is not Python{where}: {problem}", hint=hint) from why
    script = Script(path, Source(text.encode()), Names(tree), encoding)
    imported = _imports(tree)
    if others := sorted(imported.intersection(ENGINES)):
        hint = "start it as its own documentation says"
        raise SpecError(f"{path} uses {others[0]}, which makes it parallel itself", hint=hint)
    if "torch" not in imported:
        hint = "scalewise port reads scripts that are written in PyTorch"
        raise SpecError(f"{path} does not import torch", hint=hint)
    if not script.backwards:
        hint = "give the file with the training loop, where .backward() is called"
        raise SpecError(f"{path} has no training loop", hint=hint)
    return script


def _imports(tree: ast.Module) -> set[str]:
    modules = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    ]
    return {name.partition(".")[0] for name in modules}
