"""The six steps from a serial script to a data parallel one, with the edits of each step.

Without torchrun, `RANK`, `LOCAL_RANK` and `WORLD_SIZE` are 0, 0 and 1: the script runs as before.
"""

import ast
import re
from collections.abc import Callable

from scalewise.port.data_sharding import sharding_step
from scalewise.port.name_tracking import dotted_name, keyword_value, last_name
from scalewise.port.patch import Edit, Step
from scalewise.port.placement import GPU_NAMES, find_placement, is_int
from scalewise.port.saving import saving_step
from scalewise.port.serial_script import Script
from scalewise.port.wrapping import main_guard, runs_on_import, wrapped_models, wrapping_step


def steps(script: Script) -> list[Step]:
    """Return the six steps, in the order in which a person would take them."""
    step_functions: list[Callable[[Script], Step]] = [
        process_group_step, device_step, sharding_step, batch_move_step, wrapping_step, saving_step,
    ]  # fmt: skip
    return [step_function(script) for step_function in step_functions]


def process_group_step(script: Script) -> Step:
    """Return the step that initializes the process group and destroys it at the end."""
    name = "process group"
    if calls := script.calls("init_process_group"):
        return Step(name, "present", f"line {calls[0].lineno}: {dotted_name(calls[0].func)}")
    guard = main_guard(script)
    destroy_lines = ["if WORLD_SIZE > 1:", "    dist.destroy_process_group()"]
    if guard is None:
        edits = [script.source.insert_after(script.names.tree.body[-1], ["", *destroy_lines])]
    else:
        last = guard.body[-1]
        edits = _destroy_before_exit(script, last, destroy_lines)
        edits = edits or [script.source.insert_after(last, destroy_lines)]
        if not top_level_setup(script):
            first = script.statement(guard.body[0])
            edits.append(script.source.insert_before(first, _setup_lines(script)))
    for bar in script.calls("tqdm", "trange"):
        if bar.args and not keyword_value(bar, "disable"):
            edits.append(script.source.append_argument(bar, "disable=RANK > 0"))
    return Step(name, "missing", "created under torchrun, destroyed at the end", tuple(edits))


def _setup_lines(script: Script, condition: str = "WORLD_SIZE > 1") -> list[str]:
    if find_placement(script).on_cpu:
        return [f"if {condition}:", '    dist.init_process_group("gloo")']
    return [
        f"if {condition}:",
        "    if torch.cuda.is_available():",
        '        torch.cuda.set_device(LOCAL_RANK)  # From here on, "cuda" is this rank\'s device.',
        '        dist.init_process_group("cpu:gloo,cuda:nccl")',
        "    else:",
        '        dist.init_process_group("gloo")',
    ]


def top_level_setup(script: Script) -> list[str]:
    """Return the setup lines to add after the imports; empty if the main guard gets them."""
    if main_guard(script) is None:
        return _setup_lines(script)
    if any(runs_on_import(script, statement) for _, statement in wrapped_models(script)):
        return _setup_lines(script, 'WORLD_SIZE > 1 and __name__ == "__main__"')
    return []


def _destroy_before_exit(script: Script, last: ast.stmt, destroy_lines: list[str]) -> list[Edit]:
    """If ``last`` is ``sys.exit(main())``, return edits that destroy the group before the exit."""
    exit_call = last.value if isinstance(last, ast.Expr) else getattr(last, "exc", None)
    if not isinstance(exit_call, ast.Call) or last_name(exit_call) not in ("exit", "SystemExit"):
        return []
    if not exit_call.args or not isinstance(exit_call.args[0], ast.Call):
        return [script.source.insert_before(last, destroy_lines)]
    main_call = script.source.text_of(exit_call.args[0])
    return [
        script.source.insert_before(last, [f"exit_code = {main_call}", *destroy_lines]),
        script.source.replace(exit_call.args[0], "exit_code"),
    ]


def device_step(script: Script) -> Step:
    """Return the step that gives each rank its own device."""
    name, source = "device of the rank", script.source
    for call in script.calls("set_device", "set_device_index", "device", "cuda", "to"):
        if "rank" in source.text_of(call).lower():
            return Step(name, "present", f"line {call.lineno}: {source.text_of(call)}")
    placement = find_placement(script)
    if placement.on_cpu:
        return Step(name, "not needed", "only the CPU is used; ranks communicate with gloo")
    if move := placement.unknown_move:
        text = f"line {move.lineno}: {source.text_of(move)}"
        message = f"{text} may be any device; give each rank its own, cuda:0 to rank 0 and so on"
        return Step(name, "by hand", message)
    edits = [source.replace(index, "LOCAL_RANK") for index in placement.fixed_indices]
    edits += [
        source.replace(node, 'f"cuda:{LOCAL_RANK}"')
        for node in script.names.nodes
        if isinstance(node, ast.Constant | ast.JoinedStr)
        and re.match(r"""f?["']cuda:(\d+|{.+})["']$""", source.text_of(node))  # f"cuda:{index}"
    ]
    for call in script.calls("cuda", "device", "set_device"):
        index = call.args[-1] if call.args else None
        if index and (is_int(index) or GPU_NAMES.search(source.text_of(index))):
            edits.append(source.replace(index, "LOCAL_RANK"))
    # In scripts without init_process_group, process_group_step adds set_device.
    if group_calls := script.calls("init_process_group"):
        lines = ["if torch.cuda.is_available():", "    torch.cuda.set_device(LOCAL_RANK)"]
        edits.append(source.insert_before(script.statement(group_calls[0]), lines))
    line = placement.accelerator_line
    message = f"line {line} chooses a device; each rank takes device LOCAL_RANK"
    return Step(name, "missing", message, tuple(dict.fromkeys(edits)))


def batch_move_step(script: Script) -> Step:
    """Return the step that moves the batches to the rank's device."""
    name = "data on the device"
    if find_placement(script).on_cpu:
        return Step(name, "not needed", "only the CPU is used")
    if move := _first_batch_move(script):
        return Step(name, "present", f"line {move.lineno}: {script.source.text_of(move)}")
    loop = script.batch_loop(script.train_loader) if script.train_loader else None
    batch_names = _batch_names(script, loop) if isinstance(loop, ast.For) else []
    if not isinstance(loop, ast.For) or not batch_names:
        return Step(name, "by hand", "move each batch in the loop: data = data.to(device)")
    device = _device_expression(script, loop)
    moved = ", ".join(f"{batch_name}.to({device})" for batch_name in batch_names)
    edit = script.source.insert_before(loop.body[0], [f"{', '.join(batch_names)} = {moved}"])
    return Step(name, "missing", f"line {loop.lineno}: batches stay on the CPU", (edit,))


def _first_batch_move(script: Script) -> ast.Call | None:
    """Return the first ``.to`` or ``.cuda`` call on data, if possible one in training code."""
    names = script.names
    moves = []
    for call in script.calls("to", "cuda"):
        if not isinstance(call.func, ast.Attribute) or names.full_name(call) == "torch.cuda":
            continue
        moved = names.unwrap(call)
        if not isinstance(moved, ast.Call) and names.variable(moved) not in script.model_variables:
            moves.append(call)
    in_training = [
        call
        for call in moves
        if script.trains(script.statement(call)) or names.scope(call) in script.training_functions
    ]
    loops = set(script.training_loops)
    in_training += [call for call in moves if loops.intersection(names.ancestors(call))]
    return next(iter(in_training or moves), None)


def _batch_names(script: Script, loop: ast.For) -> list[str]:
    """Return the variables of a loop's batch; empty if the loop's form prevents moving them."""
    batch: ast.expr | None = loop.target
    if isinstance(loop.iter, ast.Call) and script.names.short_name(loop.iter) == "enumerate":
        batch = batch.elts[1] if isinstance(batch, ast.Tuple) and len(batch.elts) == 2 else None
    elements = batch.elts if isinstance(batch, ast.Tuple) else [batch]
    names = [element.id for element in elements if isinstance(element, ast.Name)]
    can_move = len(names) == len(elements) and script.source.begins_line(loop.body[0])
    return names if can_move else []


def _device_expression(script: Script, loop: ast.For) -> str:
    """Return an expression that gives the model's device inside a training loop."""
    for node in script.names.nodes:
        if isinstance(node, ast.Name) and node.id == "device":
            variable = script.names.variable(node)
            if variable and variable[0] in (script.names.scope(loop), script.names.tree):
                return "device"
    functions = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    variables = script.model_variables
    model = next((func for func in functions if script.names.variable(func) in variables), None)
    return f"next({dotted_name(model) or 'model'}.parameters()).device"
