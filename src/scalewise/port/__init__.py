"""Take a serial PyTorch script through the six steps of data parallelism.

The script is read, never run and never rewritten: what is missing becomes a patch
that keeps every other character of it.
"""

from dataclasses import dataclass
from pathlib import Path

from scalewise.errors import SpecError
from scalewise.port.header import header
from scalewise.port.patch import edited, unified
from scalewise.port.port_step import Step
from scalewise.port.reading import read
from scalewise.port.remarks import remarks
from scalewise.port.six_steps import at_top_level, steps
from scalewise.record.write import cannot_write


@dataclass(frozen=True, slots=True)
class Ported:
    """What was found for each step, what else to know, the patch, and the text it leads to."""

    steps: tuple[Step, ...]
    remarks: tuple[str, ...]
    patch: str
    text: bytes
    encoding: str

    @property
    def diff(self) -> bytes:
        """The patch as it is written to a file, in the encoding of the script."""
        names, mark, changes = self.patch.partition("\n@@")
        return names.encode() + (mark + changes).encode(self.encoding)

    def write(self, path: Path) -> None:
        """Write the ported text over the script; its permissions stay."""
        try:
            path.write_bytes(self.text)
        except OSError as why:
            raise cannot_write(path, why) from why

    def __str__(self) -> str:
        """Return the findings, one line per step."""
        lines = [
            f"{number} {step.name:<18} {step.state:<10}  {step.says}"
            for number, step in enumerate(self.steps, start=1)
        ]
        return "\n".join([*lines, *(f"note: {each}" for each in self.remarks)])


def port(path: Path) -> Ported:
    """Return the six steps of a script, and the patch that takes those it has not taken."""
    script = read(path)
    found = steps(script)
    edits = [edit for step in found for edit in step.edits]
    edits.sort(key=lambda edit: "destroy_process_group" in edit.text)  # Nothing comes after it.
    alone = found[0].state == "missing"
    if found[2].state == found[4].state == "by hand":
        why = f"by hand: {found[2].says}; {found[4].says}"
        raise SpecError(f"{path} has neither a loader nor a model that can be seen", hint=why)
    if edits:
        first = at_top_level(script) if alone else []
        edits = [*header(script, edits, first, quiet=alone), *edits]
    before = path.read_bytes()
    text = edited(script.source, edits).decode().encode(script.encoding)
    try:
        compile(text, str(path), "exec", dont_inherit=True)
    except SyntaxError as why:
        hint = "please tell us about it, with the script"
        raise SpecError(f"{path} is written in a way that cannot be patched", hint=hint) from why
    encoding = script.encoding.removesuffix("-sig")  # In a patch, the mark is a letter.
    patch = unified(_name(path), before, text, encoding)
    return Ported(tuple(found), tuple(remarks(script)), patch, text, encoding)


def _name(path: Path) -> str:
    """Return the path as the patch names it: from here if it lies below, else its last part."""
    here = Path.cwd()
    whole = path.absolute()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else path.name
