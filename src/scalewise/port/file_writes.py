"""Find calls that write files, and the statements that only rank 0 has to run."""

import ast
import re

from scalewise.port.name_tracking import keyword_value, last_name
from scalewise.port.serial_script import Script

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
"""Functions with the path first and the mode second; ``Path.open`` has the mode first."""


def write_calls(script: Script) -> list[ast.Call]:
    """Return the calls that write a file, or open one for writing."""
    return [
        call
        for call in script.names.calls()
        if script.names.full_name(call) in SAVE_FUNCTIONS
        or last_name(call) in SAVE_METHODS
        or _opens_for_writing(script, call)
    ]


def guardable_statement(script: Script, call: ast.Call) -> ast.stmt | None:
    """Return the statement around a write that can run on rank 0 only, if there is one."""
    ancestors = list(script.names.ancestors(call))
    statements = [node for node in ancestors if isinstance(node, ast.stmt)]
    with_blocks = [
        node for node in statements if _is_with_open(node) and _can_be_skipped(script, node)
    ]
    if with_blocks:
        return with_blocks[-1]
    in_lambda = any(isinstance(node, ast.Lambda) for node in ancestors)
    return statements[0] if isinstance(statements[0], ast.Expr) and not in_lambda else None


def file_mode(script: Script, call: ast.Call) -> str:
    """Return the mode in which a file is opened; empty if it is no literal."""
    position = 1 if script.names.full_name(call) in OPEN_FUNCTIONS else 0
    mode = keyword_value(call, "mode") or next(iter(call.args[position : position + 1]), None)
    return str(mode.value) if isinstance(mode, ast.Constant) else ""


def _opens_for_writing(script: Script, call: ast.Call) -> bool:
    """Return whether a call opens a file to write, append or create it."""
    mode = file_mode(script, call) if last_name(call) == "open" else ""
    return bool(re.fullmatch("[rwaxbt+]+", mode) and re.search("[wax+]", mode))


def _is_with_open(node: ast.AST) -> bool:
    return isinstance(node, ast.With) and any(
        isinstance(item.context_expr, ast.Call) and last_name(item.context_expr) == "open"
        for item in node.items
    )


def _can_be_skipped(script: Script, block: ast.stmt) -> bool:
    """Return whether other ranks can skip a block: it neither trains nor sets a value read later.

    Calling the model counts as training: its collectives need all ranks.
    """
    nodes = set(ast.walk(block))
    for node in nodes:
        if isinstance(node, ast.Return | ast.Yield | ast.Break | ast.Continue):
            return False
        if (
            isinstance(node, ast.Call)
            and script.names.variable(node.func) in script.model_variables
        ):
            return False
    assigned = {script.names.variable(node) for node in nodes if _has_context(node, ast.Store)}
    assigned -= {
        script.names.variable(node.optional_vars)
        for node in nodes
        if isinstance(node, ast.withitem)
    }
    reads = (
        node for node in script.names.nodes if node not in nodes and _has_context(node, ast.Load)
    )
    return not script.trains(block) and not any(
        script.names.variable(node) in assigned for node in reads
    )


def _has_context(node: ast.AST, context: type[ast.expr_context]) -> bool:
    """Return whether a node is a name or attribute that is read (Load) or assigned (Store)."""
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, context)
