"""Which device a script moves its model and its batches to, as far as that can be read.

A whole number is an accelerator. What cannot be read is said, and never taken for the CPU.
"""

import ast
import re
from dataclasses import dataclass

from scalewise.port.name_tracking import last_name
from scalewise.port.serial_script import Script

TYPES = re.compile(r"type$|float|half|double|int\d*$|bool$")
"""Names of what a tensor may be converted to, beside a device."""
OPTIONS = re.compile(r"arg|conf|cfg|flag|opt|param|setting", re.IGNORECASE)
"""Names of what holds a script's options."""
GPU = re.compile(r"\bgpu(_?id)?s?$")


@dataclass(frozen=True)
class Placement:
    """Where an accelerator is spoken of first, and by which whole numbers; what is unknown."""

    line: int | None
    numbers: tuple[ast.expr, ...] = ()
    """What stands for one device, and should stand for each rank's own."""
    unknown: ast.Call | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether all happens on the CPU."""
        return self.line is None and self.unknown is None


def placement(script: Script) -> Placement:
    """Return where a script computes."""
    spoken = [
        node.lineno
        for node in script.names.nodes
        if (isinstance(node, ast.Constant) and str(node.value).startswith(("cuda", "xpu")))
        or (isinstance(node, ast.Attribute) and node.attr in ("accelerator", "cuda"))
    ]
    numbers: dict[ast.expr, None] = {}
    unknown: list[ast.Call] = []
    for call, value in _moves(script):
        origins = _origins(script, value)
        counted = [each for each in origins if _is_number(each)]
        if not counted and GPU.search(script.source.of(value)):
            counted = [value]
        numbers |= dict.fromkeys(counted)
        if not counted and not (origins and all(map(_is_cpu, origins))):
            unknown.append(call)
    line = min([*spoken, *(each.lineno for each in numbers)], default=None)
    return Placement(line, tuple(numbers), unknown[0] if unknown and line is None else None)


def _origins(script: Script, value: ast.expr) -> list[ast.expr]:
    """Return what a device was given as, whether or not ``torch.device`` was called with it."""
    found = script.names.values(value)
    inside = [each.args[0] for each in found if isinstance(each, ast.Call) and _makes(each)]
    others = [each for each in found if not (isinstance(each, ast.Call) and _makes(each))]
    return [*others, *(origin for each in inside for origin in script.names.values(each))]


def _makes(call: ast.Call) -> bool:
    return last_name(call) == "device" and bool(call.args)


def _moves(script: Script) -> list[tuple[ast.Call, ast.expr]]:
    """Return every call that may move something, with the device it is given."""
    found = []
    for call in script.calls("to"):
        named = [each.value for each in call.keywords if each.arg == "device"]
        for value in [*named, *call.args][:1]:
            if isinstance(call.func, ast.Attribute) and _may_be_device(script, value):
                found.append((call, value))
    return found


def _may_be_device(script: Script, value: ast.expr) -> bool:
    """Say whether ``.to`` is given a device: not a type, nor where another tensor is."""
    if isinstance(value, ast.Attribute) and value.attr == "device":
        asked = OPTIONS.search(script.source.of(value.value))
        return bool(asked) or script.names.place(value) in script.names.assigned
    return not TYPES.search(last_name(value))


def _is_number(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int


def _is_cpu(value: ast.expr) -> bool:
    """Say whether a value names a device; one that is an accelerator is spoken of anyway."""
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
