"""The six steps from a serial script to a data parallel one, and the edits each needs.

Every step looks first whether it is taken already. What it adds is what a person
would write: `RANK`, `LOCAL_RANK` and `WORLD_SIZE` come from torchrun, and without
torchrun they are 0, 0 and 1, so that the script still runs alone.
"""

import ast
import re
from collections.abc import Callable

from scalewise.port.data_sharding import SAMPLERS, sampler
from scalewise.port.entry import guard, outside_guard
from scalewise.port.name_tracking import dotted, last_name
from scalewise.port.patch import Edit
from scalewise.port.placement import GPU, placement
from scalewise.port.port_step import Step
from scalewise.port.saving import saved_once
from scalewise.port.serial_script import Script
from scalewise.port.wrapping import wrapped_model, wrapped_where


def steps(script: Script) -> list[Step]:
    """Return the six steps, in the order in which a person would take them."""
    every: list[Callable[[Script], Step]] = [
        process_group, device, share_of_the_data, moved_data, wrapped_model, saved_once,
    ]  # fmt: skip
    return [each(script) for each in every]


def process_group(script: Script) -> Step:
    """Set up the processes' group when there is more than one, and take it down at the end."""
    name = "process group"
    if started := script.calls("init_process_group"):
        return Step(name, "there", f"line {started[0].lineno}: {dotted(started[0].func)}")
    main = guard(script)
    down = ["if WORLD_SIZE > 1:", "    dist.destroy_process_group()"]
    if main is None:
        edits = [script.source.after(script.names.tree.body[-1], ["", *down])]
    else:
        last = main.body[-1]
        edits = _around_exit(script, last, down) or [script.source.after(last, down)]
        if not at_top_level(script):
            edits.append(script.source.before(script.statement(main.body[0]), _set_up(script)))
    for bar in script.calls("tqdm", "trange"):
        if bar.args and not any(each.arg == "disable" for each in bar.keywords):
            edits.append(script.source.with_argument(bar, "disable=RANK > 0"))
    return Step(name, "missing", "set up under torchrun, taken down at the end", tuple(edits))


def _set_up(script: Script, many: str = "WORLD_SIZE > 1") -> list[str]:
    if placement(script).on_cpu:
        return [f"if {many}:", '    dist.init_process_group("gloo")']
    return [
        f"if {many}:",
        "    if torch.cuda.is_available():",
        '        torch.cuda.set_device(LOCAL_RANK)  # From here on, "cuda" is this rank\'s device.',
        '        dist.init_process_group("cpu:gloo,cuda:nccl")',
        "    else:",
        '        dist.init_process_group("gloo")',
    ]


def at_top_level(script: Script) -> list[str]:
    """Return the set up that follows the imports: no guard, or a model is wrapped outside it."""
    if guard(script) is None:
        return _set_up(script)
    if any(outside_guard(script, where) for _, where in wrapped_where(script)):
        return _set_up(script, 'WORLD_SIZE > 1 and __name__ == "__main__"')
    return []


def _around_exit(script: Script, last: ast.stmt, down: list[str]) -> list[Edit]:
    """Return the edits for ``sys.exit(main())``: keep the code, take down, then leave."""
    left = last.value if isinstance(last, ast.Expr) else getattr(last, "exc", None)
    if not isinstance(left, ast.Call) or last_name(left) not in ("exit", "SystemExit"):
        return []
    if not left.args or not isinstance(left.args[0], ast.Call):
        return [script.source.before(last, down)]
    code = script.source.of(left.args[0])
    return [
        script.source.before(last, [f"exit_code = {code}", *down]),
        script.source.replace(left.args[0], "exit_code"),
    ]


def device(script: Script) -> Step:
    """Give each rank a device of its own."""
    name = "device of the rank"
    for call in script.calls("set_device", "set_device_index", "device", "cuda", "to"):
        if "rank" in script.source.of(call).lower():
            return Step(name, "there", f"line {call.lineno}: {script.source.of(call)}")
    where = placement(script)
    if where.on_cpu:
        return Step(name, "not needed", "all happens on the CPU, so ranks meet over gloo")
    if where.unknown:
        written = f"line {where.unknown.lineno}: {script.source.of(where.unknown)}"
        says = f"{written} may be any device; give each rank its own, cuda:0 to rank 0 and so on"
        return Step(name, "by hand", says)
    edits = [script.source.replace(each, "LOCAL_RANK") for each in where.numbers]
    edits += [
        script.source.replace(node, 'f"cuda:{LOCAL_RANK}"')
        for node in script.names.nodes
        if isinstance(node, ast.Constant | ast.JoinedStr)
        and re.match(r"""f?["']cuda:(\d+|{.+})["']$""", script.source.of(node))
    ]
    for call in script.calls("cuda", "device", "set_device"):
        number = call.args[-1] if call.args else None
        counted = isinstance(number, ast.Constant) and type(number.value) is int
        if number and (counted or GPU.search(script.source.of(number))):
            edits.append(script.source.replace(number, "LOCAL_RANK"))
    if script.calls("init_process_group"):
        group = script.statement(script.calls("init_process_group")[0])
        lines = ["if torch.cuda.is_available():", "    torch.cuda.set_device(LOCAL_RANK)"]
        edits.append(script.source.before(group, lines))
    says = f"line {where.line} chooses a device; each rank takes that of LOCAL_RANK"
    return Step(name, "missing", says, tuple(dict.fromkeys(edits)))


def share_of_the_data(script: Script) -> Step:
    """Let each rank read its own share of the training data, in a new order each epoch."""
    name = "share of the data"
    present = script.calls(*SAMPLERS)
    loader = script.train_loader
    guessed = loader is not None and not script.is_seen_to_train(loader)
    ordered = all("shuffle=False" in script.source.of(each) for each in present)
    told = script.calls("set_epoch") or not (script.epoch_loop or guessed)
    if present and (ordered or told):
        return Step(name, "there", f"line {present[0].lineno}: {last_name(present[0])}")
    problem, says, edits = sampler(script, made=bool(present))
    if problem:
        return Step(name, "by hand", problem, tuple(edits))
    return Step(name, "missing", says, tuple(edits))


def moved_data(script: Script) -> Step:
    """See that model and batches go to the rank's device."""
    name = "data on the device"
    if placement(script).on_cpu:
        return Step(name, "not needed", "all happens on the CPU")
    known = {place for model in script.models for place in model.places}
    moves = [
        call
        for call in script.calls("to", "cuda")
        if isinstance(call.func, ast.Attribute) and script.names.full(call) != "torch.cuda"
    ]
    data = [
        call
        for call in moves
        if not isinstance(script.names.origin(call), ast.Call)
        and script.names.place(script.names.origin(call)) not in known
    ]
    inside = [each for each in data if script.trains(script.statement(each))
              or script.names.scope(each) in script.training_functions]  # fmt: skip
    inside += [each for each in data if set(script.names.above(each)) & set(script.loops)]
    if found := inside or data:
        return Step(name, "there", f"line {found[0].lineno}: {script.source.of(found[0])}")
    loop = script.batch_loop(script.train_loader) if script.train_loader else None
    by_hand = Step(name, "by hand", "move each batch in the loop: data = data.to(device)")
    if not isinstance(loop, ast.For):
        return by_hand
    batch: ast.expr | None = loop.target
    if isinstance(loop.iter, ast.Call) and script.names.last(loop.iter) == "enumerate":
        batch = batch.elts[1] if isinstance(batch, ast.Tuple) and len(batch.elts) == 2 else None
    parts = batch.elts if isinstance(batch, ast.Tuple) else [batch]
    named = [each.id for each in parts if isinstance(each, ast.Name)]
    if len(named) != len(parts) or not script.source.begins_line(loop.body[0]):
        return by_hand
    where = _device_name(script, loop)
    line = f"{', '.join(named)} = {', '.join(f'{each}.to({where})' for each in named)}"
    edit = script.source.before(loop.body[0], [line])
    return Step(name, "missing", f"line {loop.lineno}: batches stay on the CPU", (edit,))


def _device_name(script: Script, loop: ast.For) -> str:
    """Return a way to say the model's device inside the training loop."""
    for node in script.names.nodes:
        if isinstance(node, ast.Name) and node.id == "device":
            place = script.names.place(node)
            if place and place[0] in (script.names.scope(loop), script.names.tree):
                return "device"
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
    known = {place for model in script.models for place in model.places}
    model = next((each.func for each in calls if script.names.place(each.func) in known), None)
    return f"next({dotted(model) or 'model'}.parameters()).device"
