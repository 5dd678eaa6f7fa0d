"""Port a serial PyTorch script to DDP in six steps, as a patch; the script is never executed."""

import ast
import tokenize
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from scalewise.errors import SpecError
from scalewise.files import access_hint, read_file
from scalewise.launch.program import PARALLEL_LIBRARIES, SCRIPT_LIMIT
from scalewise.port.header import header_edits
from scalewise.port.name_tracking import Names
from scalewise.port.patch import Source, Step, apply_edits, unified_diff
from scalewise.port.remarks import remarks
from scalewise.port.serial_script import Script
from scalewise.port.six_steps import steps, top_level_setup
from scalewise.record.write import cannot_write


@dataclass(frozen=True, slots=True)
class Ported:
    """The six steps with their states, the remarks, the patch, and the script after the patch."""

    steps: tuple[Step, ...]
    remarks: tuple[str, ...]
    patch: str
    patched_script: bytes
    encoding: str

    @property
    def patch_bytes(self) -> bytes:
        """The patch as bytes: file names in UTF-8, changes in the script's encoding."""
        file_names, separator, changes = self.patch.partition("\n@@")
        return file_names.encode() + (separator + changes).encode(self.encoding)

    def write(self, path: Path) -> None:
        """Overwrite the script with the patched one; the file keeps its permissions."""
        try:
            path.write_bytes(self.patched_script)
        except OSError as error:
            raise cannot_write(path, error) from error

    def __str__(self) -> str:
        lines = [
            f"{number} {step.name:<18} {step.state:<10}  {step.message}"
            for number, step in enumerate(self.steps, start=1)
        ]
        return "\n".join([*lines, *(f"note: {remark}" for remark in self.remarks)])


def port(path: Path) -> Ported:
    """Return the state of a script's six steps, and a patch that adds the missing steps."""
    script = _load_script(path)
    port_steps = steps(script)
    process_group, _, sharding, _, wrapping, _ = port_steps
    if sharding.state == wrapping.state == "by hand":
        hint = f"by hand: {sharding.message}; {wrapping.message}"
        raise SpecError(f"neither a loader nor a model was found in {path}", hint=hint)
    edits = [edit for step in port_steps for edit in step.edits]
    # Edits at the same offset are applied in list order: destroy the process group last.
    edits.sort(key=lambda edit: "destroy_process_group" in edit.text)
    if edits:
        is_serial = process_group.state == "missing"
        setup = top_level_setup(script) if is_serial else []
        edits = [*header_edits(script, edits, setup, quiet=is_serial), *edits]
    original = path.read_bytes()
    patched_script = apply_edits(script.source, edits).decode().encode(script.encoding)
    try:
        compile(patched_script, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        hint = "please report it, with the script"
        raise SpecError(f"{path} is written in a way that cannot be patched", hint=hint) from error
    encoding = script.encoding.removesuffix("-sig")  # The patch has no byte order mark.
    full_path, cwd = path.absolute(), Path.cwd()
    is_inside_cwd = full_path.is_relative_to(cwd)
    path_in_patch = str(full_path.relative_to(cwd)) if is_inside_cwd else path.name
    patch = unified_diff(path_in_patch, original, patched_script, encoding)
    return Ported(tuple(port_steps), tuple(remarks(script)), patch, patched_script, encoding)


def _load_script(path: Path) -> Script:
    """Return the parsed script; raise SpecError if it is no PyTorch training script."""
    try:
        encoded = read_file(path, SCRIPT_LIMIT)
        encoding, _ = tokenize.detect_encoding(BytesIO(encoded).readline)
        text = encoded.decode(encoding)
        tree = ast.parse(text)
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}", hint=access_hint(error)) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, problem = "", "its text cannot be read"
        if isinstance(error, SyntaxError):
            line, problem = f", line {error.lineno}" if error.lineno else "", error.msg
        hint = "give a script in Python 3 and UTF-8, or with a line that names its encoding"
        raise SpecError(f"{path} is not Python{line}: {problem}", hint=hint) from error
    script = Script(path, Source(text.encode()), Names(tree), encoding)
    modules = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
    packages = {module.partition(".")[0] for module in modules}
    if libraries := sorted(packages.intersection(PARALLEL_LIBRARIES)):
        hint = f"start it as the documentation of {libraries[0]} says"
        raise SpecError(f"{path} uses {libraries[0]}, which already makes it parallel", hint=hint)
    if "torch" not in packages:
        hint = "scalewise port reads scripts that are written in PyTorch"
        raise SpecError(f"{path} does not import torch", hint=hint)
    if not script.backward_calls:
        hint = "give the file with the training loop, where .backward() is called"
        raise SpecError(f"{path} has no training loop", hint=hint)
    return script
