"""Parse a script from its file; refuse anything but a PyTorch training script."""

import ast
import tokenize
from io import BytesIO
from pathlib import Path

from scalewise.errors import SpecError
from scalewise.launch.program import PARALLEL_LIBRARIES
from scalewise.port.name_tracking import Names
from scalewise.port.patch import Source
from scalewise.port.serial_script import Script


def load_script(path: Path) -> Script:
    """Return the parsed script; raise SpecError if it is no PyTorch training script."""
    try:
        encoded = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(BytesIO(encoded).readline)
        text = encoded.decode(encoding)
        tree = ast.parse(text)
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}", hint="give a script") from error
    except (SyntaxError, ValueError, RecursionError) as error:
        line, problem = "", "its text cannot be read"
        if isinstance(error, SyntaxError):
            line, problem = f", line {error.lineno}" if error.lineno else "", error.msg
        hint = "give a script that runs with `python`, written in Python 3 and UTF-8,"
        hint += " or with a line that names its coding"
        raise SpecError(f"{path} is not Python{line}: {problem}", hint=hint) from error
    script = Script(path, Source(text.encode()), Names(tree), encoding)
    imports = _imported_packages(tree)
    if frameworks := sorted(imports.intersection(PARALLEL_LIBRARIES)):
        hint = "start it as its own documentation says"
        raise SpecError(f"{path} uses {frameworks[0]}, which makes it parallel itself", hint=hint)
    if "torch" not in imports:
        hint = "scalewise port reads scripts that are written in PyTorch"
        raise SpecError(f"{path} does not import torch", hint=hint)
    if not script.backward_calls:
        hint = "give the file with the training loop, where .backward() is called"
        raise SpecError(f"{path} has no training loop", hint=hint)
    return script


def _imported_packages(tree: ast.Module) -> set[str]:
    modules = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
    return {module.partition(".")[0] for module in modules}
