"""Find what writes files, and the statements that one rank alone can run."""

import ast
import re

from scalewise.port.name_tracking import last_name
from scalewise.port.serial_script import Script

SAVERS = {
    "torch.save", "torch.jit.save", "numpy.save", "numpy.savez", "numpy.savez_compressed",
    "numpy.savetxt", "np.save", "np.savez", "np.savetxt", "json.dump", "pickle.dump",
    "joblib.dump", "plt.savefig", "torchvision.utils.save_image", "safetensors.torch.save_file",
    "cv2.imwrite",
}  # fmt: skip
SAVING_METHODS = {
    "to_csv", "to_parquet", "to_pickle", "savefig", "save_pretrained", "write_text", "write_bytes",
    "tofile",
}  # fmt: skip
OPENERS = {"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"}
"""Functions that open a file by its path; a path's own ``open`` has the mode first."""


def writers(script: Script) -> list[ast.Call]:
    """Return the calls that write a file, or open one to be written."""
    return [
        call
        for call in script.names.calls()
        if script.names.full(call) in SAVERS
        or last_name(call) in SAVING_METHODS
        or _opens_to_write(script, call)
    ]


def saved_by(script: Script, call: ast.Call) -> ast.stmt | None:
    """Return the statement around a writing call that one rank alone can run, if there is one."""
    above = list(script.names.above(call))
    nest = [each for each in above if isinstance(each, ast.stmt)]
    opened = [each for each in nest if _opens(each) and _can_be_left_out(script, each)]
    if opened:
        return opened[-1]
    plain = isinstance(nest[0], ast.Expr) and not any(
        isinstance(each, ast.Lambda) for each in above
    )
    return nest[0] if plain else None


def mode(script: Script, call: ast.Call) -> str:
    """Return how a file is opened, as far as that is written down."""
    position = 1 if script.names.full(call) in OPENERS else 0
    named = [each.value for each in call.keywords if each.arg == "mode"]
    given = [*named, *call.args[position : position + 1]]
    return str(given[0].value) if given and isinstance(given[0], ast.Constant) else ""


def _opens_to_write(script: Script, call: ast.Call) -> bool:
    """Say whether a call opens a file to write, append or create it."""
    how = mode(script, call) if last_name(call) == "open" else ""
    return bool(re.fullmatch("[rwaxbt+]+", how) and re.search("[wax+]", how))


def _opens(node: ast.AST) -> bool:
    return isinstance(node, ast.With) and any(
        isinstance(each.context_expr, ast.Call) and last_name(each.context_expr) == "open"
        for each in node.items
    )


def _can_be_left_out(script: Script, block: ast.stmt) -> bool:
    """Say whether other ranks can do without a block: it trains nothing and leaves no value."""
    inside = set(ast.walk(block))
    models = {place for model in script.models for place in model.places}
    for node in inside:
        if isinstance(node, ast.Return | ast.Yield | ast.Break | ast.Continue):
            return False
        if isinstance(node, ast.Call) and script.names.place(node.func) in models:
            return False
    kept = {script.names.place(node) for node in inside if _is(node, ast.Store)}
    kept -= {
        script.names.place(each.optional_vars) for each in inside if isinstance(each, ast.withitem)
    }
    later = (each for each in script.names.nodes if each not in inside and _is(each, ast.Load))
    return not script.trains(block) and not any(script.names.place(each) in kept for each in later)


def _is(node: ast.AST, use: type[ast.expr_context]) -> bool:
    """Say whether a name or an attribute is read, or written."""
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, use)
