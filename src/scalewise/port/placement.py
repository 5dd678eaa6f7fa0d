"""Find the device of a script's model: a number is an accelerator, an unclear one is unknown."""

import ast
import re
from dataclasses import dataclass

from scalewise.port.name_tracking import keyword_value, last_name
from scalewise.port.serial_script import Script

DTYPE_NAMES = re.compile(r"type$|float|half|double|int\d*$|bool$")
"""Names of dtypes, which ``.to`` takes as well as devices."""
OPTIONS_NAMES = re.compile(r"arg|conf|cfg|flag|opt|param|setting", re.IGNORECASE)
"""Names of objects that hold a script's options."""
GPU_NAMES = re.compile(r"\bgpu(_?id)?s?$")


@dataclass(frozen=True)
class Placement:
    """The first line that mentions an accelerator, and moves to a device that is unknown."""

    line: int | None
    numbers: tuple[ast.expr, ...] = ()
    """Expressions for one fixed device, to be replaced by the rank's own."""
    unknown: ast.Call | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether everything runs on the CPU."""
        return self.line is None and self.unknown is None


def placement(script: Script) -> Placement:
    """Return the devices that a script uses."""
    numbers: dict[ast.expr, None] = {}  # An ordered set.
    unknown: list[ast.Call] = []
    for call, device in _device_moves(script):
        values = _device_values(script, device)
        indices = [value for value in values if is_int(value)]
        if not indices and GPU_NAMES.search(script.source.text_of(device)):
            indices = [device]
        numbers |= dict.fromkeys(indices)
        # A name other than "cpu" is an accelerator, and _accelerator_lines has its line.
        are_names = values and all(
            isinstance(value, ast.Constant) and isinstance(value.value, str) for value in values
        )
        if not indices and not are_names:
            unknown.append(call)
    lines = [*_accelerator_lines(script), *(number.lineno for number in numbers)]
    line = min(lines, default=None)
    return Placement(line, tuple(numbers), unknown[0] if unknown and line is None else None)


def is_int(node: ast.expr | None) -> bool:
    """Return whether an expression is an integer literal."""
    return isinstance(node, ast.Constant) and type(node.value) is int


def _accelerator_lines(script: Script) -> list[int]:
    return [
        node.lineno
        for node in script.names.nodes
        if (isinstance(node, ast.Constant) and str(node.value).startswith(("cuda", "xpu")))
        or (isinstance(node, ast.Attribute) and node.attr in ("accelerator", "cuda"))
    ]


def _device_values(script: Script, device: ast.expr) -> list[ast.expr]:
    """Return the possible values of a device, with ``torch.device(…)`` stripped."""
    direct, in_device = [], []
    for value in script.names.possible_values(device):
        if isinstance(value, ast.Call) and last_name(value) == "device" and value.args:
            in_device += script.names.possible_values(value.args[0])
        else:
            direct.append(value)
    return [*direct, *in_device]


def _device_moves(script: Script) -> list[tuple[ast.Call, ast.expr]]:
    """Return every ``.to`` call that may move something, with the device it gets."""
    moves = []
    assigned = {script.names.variable(target) for target, _ in script.names.assignments()}
    for call in script.calls("to"):
        device = keyword_value(call, "device") or next(iter(call.args), None)
        if not device or not isinstance(call.func, ast.Attribute):
            continue
        is_device = not DTYPE_NAMES.search(last_name(device))
        if isinstance(device, ast.Attribute) and device.attr == "device":
            # The device of another tensor moves nothing; that of the script's options does.
            is_option = OPTIONS_NAMES.search(script.source.text_of(device.value))
            is_device = bool(is_option) or script.names.variable(device) in assigned
        if is_device:
            moves.append((call, device))
    return moves
