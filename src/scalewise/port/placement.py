"""Find out whether a script computes on the CPU, on accelerators, or on an unknown device."""

import ast
import re
from dataclasses import dataclass

from scalewise.port.name_tracking import keyword_value, last_name
from scalewise.port.serial_script import Script

DTYPE_NAMES = re.compile(r"type$|float|half|double|int\d*$|bool$")
"""Names of dtypes: a ``.to`` with a dtype does not move anything."""
OPTIONS_NAMES = re.compile(r"arg|conf|cfg|flag|opt|param|setting", re.IGNORECASE)
"""Names of objects that hold a script's options, such as ``args``."""
GPU_NAMES = re.compile(r"\bgpu(_?id)?s?$")
"""Names of variables that hold the index of a device."""


@dataclass(frozen=True)
class Placement:
    """Where a script computes."""

    accelerator_line: int | None
    """The first line that mentions an accelerator."""
    fixed_indices: tuple[ast.expr, ...] = ()
    """Device indices (numbers, or variables such as ``gpu``), to be replaced by ``LOCAL_RANK``."""
    unknown_move: ast.Call | None = None
    """The first ``.to`` to an unknown device, if no accelerator is mentioned."""

    @property
    def on_cpu(self) -> bool:
        """Whether everything runs on the CPU."""
        return self.accelerator_line is None and self.unknown_move is None


def find_placement(script: Script) -> Placement:
    """Return the devices that a script uses."""
    fixed_indices: dict[ast.expr, None] = {}  # An ordered set.
    unknown_moves: list[ast.Call] = []
    for call, device in _device_moves(script):
        values = _device_values(script, device)
        indices = [value for value in values if is_int(value)]
        if not indices and GPU_NAMES.search(script.source.text_of(device)):
            indices = [device]
        fixed_indices |= dict.fromkeys(indices)
        # A string such as "cpu" or "cuda" is a known device; _accelerator_lines finds "cuda".
        are_strings = values and all(
            isinstance(value, ast.Constant) and isinstance(value.value, str) for value in values
        )
        if not indices and not are_strings:
            unknown_moves.append(call)
    lines = [*_accelerator_lines(script), *(index.lineno for index in fixed_indices)]
    if lines or not unknown_moves:
        return Placement(min(lines, default=None), tuple(fixed_indices))
    return Placement(None, (), unknown_moves[0])


def is_int(node: ast.expr | None) -> bool:
    """Return whether an expression is an integer literal; ``True`` is not an integer here."""
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
    direct, in_device_call = [], []
    for value in script.names.possible_values(device):
        if isinstance(value, ast.Call) and last_name(value) == "device" and value.args:
            in_device_call += script.names.possible_values(value.args[0])
        else:
            direct.append(value)
    return [*direct, *in_device_call]


def _device_moves(script: Script) -> list[tuple[ast.Call, ast.expr]]:
    """Return every ``.to`` call that may choose a device, with its device argument."""
    moves = []
    assigned = {script.names.variable(target) for target, _ in script.names.assignments()}
    for call in script.calls("to"):
        device = keyword_value(call, "device") or next(iter(call.args), None)
        if not device or not isinstance(call.func, ast.Attribute):
            continue
        is_device = not DTYPE_NAMES.search(last_name(device))
        if isinstance(device, ast.Attribute) and device.attr == "device":
            # x.to(y.device) follows tensor y and chooses no device; args.device does.
            is_option = OPTIONS_NAMES.search(script.source.text_of(device.value))
            is_device = bool(is_option) or script.names.variable(device) in assigned
        if is_device:
            moves.append((call, device))
    return moves
