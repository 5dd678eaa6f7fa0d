"""The lines a ported script gets at its top: imports, rank variables and a helper function."""

import ast
import sys
from collections.abc import Iterable
from itertools import dropwhile, takewhile

from scalewise.errors import SpecError
from scalewise.port.patch import Edit
from scalewise.port.serial_script import Script

RANK_VARIABLES = {
    "RANK": 'RANK = int(os.environ.get("RANK", 0))',
    "LOCAL_RANK": 'LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))',
    "WORLD_SIZE": 'WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))',
}
IMPORTS = {
    "torch.cuda": "import torch",
    "torch.Generator": "import torch",
    "dist.": "import torch.distributed as dist",
    "DistributedDataParallel": "from torch.nn.parallel import DistributedDataParallel",
    "DistributedSampler": "from torch.utils.data import DistributedSampler",
}
"""Maps text that added code may contain to the import that such code needs."""
RANK_COMMENT = "# torchrun sets these for each process; without torchrun, this is rank 0 of 1."
QUIET_LINES = [
    "if RANK > 0:",
    "    print = lambda *values, **options: None  # Rank 0 prints for all.",
]
UNWRAP_FUNCTION = [
    "",
    "",
    "def unwrapped(model):",
    '    """Return the model without its wrapper: saved names must not begin with `module.`."""',
    "    return model.module if isinstance(model, DistributedDataParallel) else model",
]


def header_edits(
    script: Script, edits: Iterable[Edit], setup: list[str], *, quiet: bool
) -> list[Edit]:
    """Return the edits that add, at the top of a script, the ``setup`` lines and what they need.

    What the other ``edits`` need is added too; ``quiet`` lets only rank 0 print.
    """
    edits_and_setup = "\n".join([*(edit.text for edit in edits), *setup])
    if not edits_and_setup:
        return []
    quiet = quiet and bool(script.calls("print"))
    script_names = script.names.bound_names[script.names.tree]
    defines_unwrap = "unwrapped(" in edits_and_setup and "unwrapped" not in script_names
    quiet_lines = QUIET_LINES if quiet else []
    unwrap_lines = UNWRAP_FUNCTION if defines_unwrap else []
    added_code = "\n".join([edits_and_setup, *quiet_lines, *unwrap_lines])
    _refuse_name_clashes(script, added_code)
    header = _missing_imports(script, added_code)
    variables = [name for name in RANK_VARIABLES if _uses(added_code, name)]
    rank_lines = [RANK_VARIABLES[name] for name in variables if name not in script_names]
    header += ["", RANK_COMMENT, *rank_lines] if rank_lines else []
    header += quiet_lines
    header += ["", *setup] if setup else []
    header += unwrap_lines
    last_import = _last_import(script, min(edit.start for edit in edits))
    end = last_import.end_lineno if last_import else 0
    following = script.source.text.decode().split("\n")[end:]
    blank_lines = list(takewhile(lambda line: not line.strip(), following))
    needed_blank_lines = 2 if defines_unwrap else 1
    header += [""] * (needed_blank_lines - len(blank_lines))
    edit = _insert_after_import(script, last_import, header)
    if (rank_lines or "os." in edits_and_setup) and "os" not in script_names:
        return [_import_os(script, last_import), edit]
    return [edit]


def _insert_after_import(script: Script, last_import: ast.stmt | None, lines: list[str]) -> Edit:
    if last_import:
        return script.source.insert_after(last_import, lines)
    return script.source.insert_before(script.names.tree.body[0], lines)


def _uses(text: str, name: str) -> bool:
    """Return whether code contains a rank variable; ``LOCAL_RANK`` does not count as ``RANK``."""
    return name in (text.replace("LOCAL_RANK", "") if name == "RANK" else text)


def _missing_imports(script: Script, added_code: str) -> list[str]:
    """Return the imports that added code needs and the top level of the script lacks."""
    present = set()
    for node in script.names.tree.body:
        module = getattr(node, "module", None) or ""
        if module.startswith("torch.utils.data"):  # Samplers may come from its submodules.
            module = "torch.utils.data"
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else []:
            prefix = f"from {module} " if isinstance(node, ast.ImportFrom) else ""
            present.add(f"{prefix}import {ast.unparse(alias)}")
    needed = dict.fromkeys(line for name, line in IMPORTS.items() if name in added_code)
    return [line for line in needed if line not in present]


def _refuse_name_clashes(script: Script, code: str) -> None:
    """Raise SpecError if a name that added ``code`` needs has another meaning in the script."""
    for node in script.names.nodes:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
            continue
        name, clashes = node.id, False
        if name in RANK_VARIABLES and _uses(code, name):
            # RANK = int(os.environ["RANK"]) and RANK = dist.get_rank() mean the same: no clash.
            statement = script.source.text_of(script.statement(node)).lower()
            clashes = not ("environ" in statement or "get_" in statement)
        elif script.names.scope(node) is script.names.tree:
            clashes = (name == "dist" and "dist." in code) or (name == "os" and "environ" in code)
        if clashes:
            hint = f"rename it, then port again; the patch defines {name} itself"
            line = f"{script.path}, line {node.lineno}"
            raise SpecError(f"{line}: the name {name} is taken", hint=hint)


def _last_import(script: Script, first_edit_offset: int) -> ast.stmt | None:
    """Return the last import before the first edit and definition; without any, the docstring."""
    imports = (ast.Import, ast.ImportFrom)
    last: ast.stmt | None = None
    for index, node in enumerate(script.names.tree.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.For | ast.While | ast.With):
            break
        if script.source.span(node)[0] >= first_edit_offset:
            break
        is_docstring = (
            index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )
        is_guarded_import = isinstance(node, ast.Try) and isinstance(node.body[0], imports)
        if isinstance(node, imports) or is_docstring or is_guarded_import:
            last = node
    return last


def _import_os(script: Script, last_import: ast.stmt | None) -> Edit:
    """Return the edit that adds ``import os``, sorted among imports of the standard library."""
    body = script.names.tree.body
    # The docstring and imports from __future__ stay first.
    after_future = dropwhile(lambda n: isinstance(n, ast.Expr) or _package(n) == "__future__", body)
    imports = list(takewhile(lambda n: isinstance(n, ast.Import | ast.ImportFrom), after_future))
    if not imports:
        return _insert_after_import(script, last_import, ["import os"])
    standard = list(takewhile(lambda node: _package(node) in sys.stdlib_module_names, imports))
    if not standard:
        return script.source.insert_before(imports[0], ["import os", ""])
    before_os = [*takewhile(lambda n: isinstance(n, ast.Import) and _package(n) < "os", standard)]
    if before_os:
        return script.source.insert_after(before_os[-1], ["import os"])
    return script.source.insert_before(standard[0], ["import os"])


def _package(node: ast.stmt) -> str:
    """Return the top-level package that an import names; empty for other statements."""
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0]
    return node.names[0].name.partition(".")[0] if isinstance(node, ast.Import) else ""
