"""What a ported script says at its top: imports, who this rank is, and small helpers."""

import ast
import sys
from collections.abc import Iterable
from itertools import dropwhile, takewhile

from scalewise.errors import SpecError
from scalewise.port.patch import Edit
from scalewise.port.serial_script import Script

PLACES = {
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
WHO = "# torchrun tells each process who it is; without torchrun, this is rank 0 of 1."
QUIET = ["if RANK > 0:", "    print = lambda *values, **options: None  # Rank 0 prints for all."]
UNWRAPPED = [
    "",
    "",
    "def unwrapped(model):",
    '    """Return the model itself: its parts, and names without `module.` in what is saved."""',
    "    return model.module if isinstance(model, DistributedDataParallel) else model",
]


def header(script: Script, edits: Iterable[Edit], first: list[str], *, quiet: bool) -> list[Edit]:
    """Return the edits at the top that the other edits need; ``first`` runs right after them."""
    added = "\n".join([*(each.text for each in edits), *first])
    if not added:
        return []
    quiet = quiet and bool(script.calls("print"))
    needs = added + "RANK" * quiet
    bound = script.names.bound(script.names.tree)
    lines = []
    if "unwrapped(" in added and "unwrapped" not in bound:
        lines = UNWRAPPED
        needs += "DistributedDataParallel"
    places = [line for name, line in PLACES.items() if _uses(needs, name) and name not in bound]
    top = [line for line in dict.fromkeys(_imports(needs)) if line not in _written(script)]
    _refuse_clashes(script, needs)
    where = _last_import(script, min(each.start for each in edits))
    who = ["", WHO, *places] if places else []
    if quiet:
        who += QUIET
    body = [*top, *who, *([""] if first else []), *first, *lines]
    body += [""] * ((2 if lines else 1) - _blank_lines_after(script, where))
    opening = script.names.tree.body[0]
    edit = script.source.after(where, body) if where else script.source.before(opening, body)
    if (places or "os." in added) and "os" not in bound:
        return [_import_os(script, where), edit]
    return [edit]


def _uses(text: str, name: str) -> bool:
    """Say whether a name is used; ``RANK`` is part of ``LOCAL_RANK``."""
    return name in (text.replace("LOCAL_RANK", "") if name == "RANK" else text)


def _imports(added: str) -> list[str]:
    return [line for word, line in IMPORTS.items() if word in added]


def _written(script: Script) -> set[str]:
    """Return the imports of the script at its top, each name on a line of its own."""
    found = set()
    for node in script.names.tree.body:
        if isinstance(node, ast.Import):
            for each in node.names:
                found.add(f"import {each.name}" + (f" as {each.asname}" if each.asname else ""))
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                module = node.module or ""
                if module.startswith("torch.utils.data"):
                    module = "torch.utils.data"
                name = f" as {each.asname}" if each.asname else ""
                found.add(f"from {module} import {each.name}{name}")
    return found


def _refuse_clashes(script: Script, added: str) -> None:
    """Refuse a script that uses one of our names for something else."""
    for node in script.names.nodes:
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
            continue
        if node.id not in PLACES and script.names.scope(node) is not script.names.tree:
            continue
        clash = node.id
        ours = clash == "dist" and "dist." in added
        if clash in PLACES and _uses(added, clash):
            statement = script.source.of(script.statement(node)).lower()
            ours = not ("environ" in statement or "get_" in statement)
        if ours or (clash == "os" and "environ" in added):
            hint = f"call it something else, then port again; the patch means its own {clash}"
            where = f"{script.path}, line {node.lineno}"
            raise SpecError(f"{where}: the name {clash} is taken", hint=hint)


def _last_import(script: Script, first_edit: int) -> ast.stmt | None:
    """Return the last import before the first edit and the first definition."""
    found: ast.stmt | None = None
    for index, node in enumerate(script.names.tree.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.For | ast.While | ast.With):
            break
        if script.source.span(node)[0] >= first_edit:
            break
        text = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        guarded = isinstance(node, ast.Try) and isinstance(
            node.body[0], ast.Import | ast.ImportFrom
        )
        if isinstance(node, ast.Import | ast.ImportFrom) or text or guarded:
            found = node
    return found


def _import_os(script: Script, last: ast.stmt | None) -> Edit:
    """Put the import where a tidy script has it: among those of the standard library."""
    run = list(takewhile(_imports_something, dropwhile(_is_opening, script.names.tree.body)))
    if not run:
        opening = script.names.tree.body[0]
        source = script.source
        return source.after(last, ["import os"]) if last else source.before(opening, ["import os"])
    standard = list(takewhile(lambda node: _module(node) in sys.stdlib_module_names, run))
    if not standard:
        return script.source.before(run[0], ["import os", ""])
    plain = list(takewhile(lambda n: isinstance(n, ast.Import) and _module(n) < "os", standard))
    if plain:
        return script.source.after(plain[-1], ["import os"])
    return script.source.before(standard[0], ["import os"])


def _is_opening(node: ast.stmt) -> bool:
    """Say whether a statement must stay first: the docstring, an import from the future."""
    return isinstance(node, ast.Expr) or _module(node) == "__future__"


def _imports_something(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _module(node: ast.stmt) -> str:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0]
    return node.names[0].name.partition(".")[0] if isinstance(node, ast.Import) else ""


def _blank_lines_after(script: Script, node: ast.stmt | None) -> int:
    """Return how many empty lines follow a statement."""
    following = (node.end_lineno or 0) if node else 0
    rest = script.source.text.decode().split("\n")[following:]
    return len(list(takewhile(lambda line: not line.strip(), rest)))
