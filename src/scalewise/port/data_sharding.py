"""The third step: each rank reads its own share of the training data.

The sampler shuffles in the loader's place. The batch is divided by the ranks, so that
the global batch, and with it the loss, stays what the serial script had.
"""

import ast

from scalewise.port.loss_averages import means, mended, written_as
from scalewise.port.name_tracking import dotted
from scalewise.port.patch import Edit
from scalewise.port.serial_script import Loader, Script

BY_HAND = "give each rank its own share: "
SHARE = "# Each rank reads its own share, in the order of the sampler."
BATCH = [
    "# The batch is divided so that the global batch stays as it was; undivided, it would",
    "# grow with the number of ranks, and the learning rate might have to grow as well.",
]
WHOLE = "# The other loaders stay whole: every rank validates on all of the data."

SAMPLERS = ("DistributedSampler", "split_dataset_by_node", "DistributedBatchSampler")
LARGE = 8
"""A batch of at least so many samples is divided without a thought of more ranks than that."""

Answer = tuple[str, str, list[Edit]]
"""A problem that is left to a person, what the step says, and its edits."""


def sampler(script: Script, *, made: bool) -> Answer:
    """Return the edits that shard the training loader, or say why a person must."""
    loader = script.train_loader
    if made:
        problem, _, more = _reshuffled(script, loader)
        return problem, "the sampler is there, but no epoch is told to it", more
    if not loader:
        if not script.loaders:
            return (
                "the batches are not made by a DataLoader; "
                + BY_HAND
                + "data[RANK::WORLD_SIZE], or a seed of its own where batches are drawn at random; "
                + "and divide the batch by WORLD_SIZE",
                "",
                [],
            )
        lines = ", ".join(str(each.call.lineno) for each in script.loaders)
        hint = "DataLoader(…, sampler=DistributedSampler(dataset)), batch size // WORLD_SIZE, "
        hint += "and loader.sampler.set_epoch(epoch) in each epoch"
        return f"line {lines}: it cannot be seen which loader trains; {BY_HAND}{hint}", "", []
    if problem := _problem(script, loader):
        return f"line {loader.call.lineno}: {problem}", "", []
    edits = [*_sharded(script, loader), *_same_split(script), *mended(script, loader)]
    ordered = script.is_seen_to_train(loader) and not shuffles(script, loader)
    problem, _, more = ("", "", []) if ordered else _reshuffled(script, loader)
    return problem, f"line {loader.call.lineno}: every rank would read all of it", [*edits, *more]


def _problem(script: Script, loader: Loader) -> str:
    """Say why a loader cannot be given a sampler, or nothing."""
    given = {each.arg for each in loader.call.keywords}
    if given & {"sampler", "batch_sampler"}:
        return "the loader has a sampler of its own; let it draw for RANK out of WORLD_SIZE"
    if len(loader.call.args) > 3 or any(isinstance(each, ast.Starred) for each in loader.call.args):
        return "the loader's arguments are given by position; name them, then port again"
    if loader.built > 1 and not _told_to_shuffle(loader):
        return (
            "one function makes the loaders for training and testing; "
            + BY_HAND
            + ("a DistributedSampler for the training loader alone, batch size // WORLD_SIZE")
        )
    inside = (ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.Dict, ast.Lambda)
    if any(isinstance(each, inside) for each in script.names.above(loader.call)):
        return "the loaders are made together; make the training loader apart, then port again"
    if isinstance(script.statement(loader.call), ast.FunctionDef | ast.ClassDef):
        return "the loader stands in the line of a def; give it a line of its own, then port again"
    dataset = loader.argument("dataset", 0)
    if not dataset:
        return "the loader's dataset is not to be seen; give it by name, then port again"
    for name, kind in script.names.classes.items():
        if any(script.names.last(base) == "IterableDataset" for base in kind.bases):
            return f"{name} is iterable; let it yield only what belongs to RANK of WORLD_SIZE"
    return ""


def _free(script: Script, name: str) -> str:
    """Return a name that the script does not use yet."""
    used = {node.id for node in script.names.nodes if isinstance(node, ast.Name)}
    used |= {node.arg for node in script.names.nodes if isinstance(node, ast.arg)}
    return name if name not in used else _free(script, f"{name}_of_rank")


def _told_to_shuffle(loader: Loader) -> bool:
    """Say whether the caller decides about shuffling: that tells training from testing."""
    shuffle = loader.argument("shuffle", 2)
    return shuffle is not None and not isinstance(shuffle, ast.Constant)


def _sharded(script: Script, loader: Loader) -> list[Edit]:
    """Return the edits of the loader itself, and the lines that make its sampler."""
    source, call = script.source, loader.call
    statement = script.statement(call)
    dataset = loader.argument("dataset", 0)
    batch, shuffle = loader.argument("batch_size", 1), loader.argument("shuffle", 2)
    batched = not (isinstance(batch, ast.Constant) and batch.value is None)
    assert dataset is not None
    edits, lines = [], []
    drawn, kept = _free(script, "train_sampler"), _free(script, "train_options")
    name = source.of(dataset)
    if not dotted(dataset):
        name, text = _free(script, "train_set"), name
        lines.append(f"{name} = {text}")
        edits.append(source.replace(dataset, name))
    options = _options(call)
    order = "False" if shuffle is None else source.of(shuffle)
    packed = options and (batch is None or (shuffle is None and _may_shuffle(script)))
    if packed and shuffle is None:
        order = f'{options}.get("shuffle", False)'
    lines += [SHARE, *(BATCH if (batch is not None and batched) or packed else [])]
    lines += [WHOLE] if len(script.loaders) > 1 or loader.built > 1 else []
    world, rank = "WORLD_SIZE", "RANK"
    if loader.built > 1:
        world = _free(script, "share")
        rank = f"RANK % {world}"
        lines.append(f"{world} = WORLD_SIZE if {order} else 1")
    elif len(order) > 20:
        order, text = _free(script, "shuffle"), order
        lines.append(f"{order} = {text}")
    lines.append(f"{drawn} = DistributedSampler({name}, {world}, {rank}, shuffle={order})")
    if packed:
        lines += [f"{kept} = dict({options}, sampler={drawn}, shuffle=False)"]
        if batch is None:
            lines.append(f'{kept}["batch_size"] = max(1, {kept}["batch_size"] // {world})')
        value = next(each.value for each in call.keywords if each.arg is None)
        edits.append(source.replace(value, kept))
        if shuffle is not None:
            edits.append(_without(script, call, shuffle))
    elif shuffle is not None:
        named = next((each for each in call.keywords if each.value is shuffle), None)
        whole = source.span(named or shuffle)[0], source.span(shuffle)[1]
        edits.append(Edit(*whole, f"sampler={drawn}"))
    else:
        edits.append(source.with_argument(call, f"sampler={drawn}"))
    if batch is not None and batched:
        plain = isinstance(
            batch, ast.Name | ast.Attribute | ast.Constant | ast.Call | ast.Subscript
        )
        text = source.of(batch) if plain else f"({source.of(batch)})"
        text = f"{text} // {world}"
        edits.append(source.replace(batch, text if _is_large(script, batch) else f"max(1, {text})"))
    return [source.before(statement, lines), *edits]


def _is_large(script: Script, batch: ast.expr) -> bool:
    """Say whether a batch can be seen to be large, so that no rank is left without a sample."""
    place = script.names.place(batch)
    given = [value for target, value in script.names.assignments()
             if place and script.names.place(target) == place]  # fmt: skip
    sizes = [each.value for each in given or [batch] if isinstance(each, ast.Constant)]
    known = len(sizes) == len(given or [batch])
    return known and all(isinstance(each, int) and each >= LARGE for each in sizes)


def _options(call: ast.Call) -> str:
    """Return the name of ``**options``, or nothing."""
    return next((dotted(each.value) for each in call.keywords if each.arg is None), "")


def shuffles(script: Script, loader: Loader) -> bool:
    """Say whether a loader may give its samples in another order each time."""
    shuffle = loader.argument("shuffle", 2)
    if shuffle is None:
        return bool(_options(loader.call)) and _may_shuffle(script)
    return not (isinstance(shuffle, ast.Constant) and shuffle.value is False)


def _may_shuffle(script: Script) -> bool:
    """Say whether the script puts the word shuffle into options of any kind."""
    words = [node.value for node in script.names.nodes if isinstance(node, ast.Constant)]
    named = [
        each.arg for call in script.calls("dict", "update", "setdefault") for each in call.keywords
    ]
    return "shuffle" in words or "shuffle" in named


def _without(script: Script, call: ast.Call, argument: ast.expr) -> Edit:
    """Take one argument out of a call, with the comma before it."""
    given = [*call.args, *(each.value for each in call.keywords)]
    before = [each for each in given if script.source.span(each) < script.source.span(argument)]
    start = max(script.source.span(each)[1] for each in before)
    return Edit(start, script.source.span(argument)[1], "")


def _same_split(script: Script) -> list[Edit]:
    """Let every rank split at random alike, where the script sets no seed."""
    if script.calls("manual_seed", "seed_everything"):
        return []
    text = "generator=torch.Generator().manual_seed(0)"
    return [
        script.source.with_argument(call, text)
        for call in script.calls("random_split")
        if not any(each.arg == "generator" for each in call.keywords)
    ]


def wrong_means(script: Script) -> list[int]:
    """Return the lines at which a sum of one rank is divided by the length of all the data."""
    loader = script.train_loader
    if not loader:
        return []
    sharded = not script.calls(*SAMPLERS) and not _problem(script, loader)
    return sorted({line for line, edit in means(script, loader) if not (edit and sharded)})


def _reshuffled(script: Script, loader: Loader | None) -> Answer:
    """Return the edit that tells the sampler each epoch, so that each has its own order."""
    loop = script.epoch_loop
    if loader and not script.is_seen_to_train(loader):
        name = min(map(written_as, loader.places), default="loader")
        return (
            f"line {loader.call.lineno}: taken for the training loader by its looks; "
            f"begin each epoch with {name}.sampler.set_epoch(epoch)",
            "",
            [],
        )
    if not loader or not loop:
        return "", "", []
    name = _seen_from(script, loader, loop)
    turn = loop.target if isinstance(loop, ast.For) else None
    counter = turn.elts[0] if isinstance(turn, ast.Tuple) else turn
    first = loop.body[0] if isinstance(loop, ast.For) else None
    if (
        not name
        or not isinstance(counter, ast.Name)
        or not first
        or not script.source.begins_line(first)
    ):
        loader_name = name or "train_loader"
        call = f"{loader_name}.sampler.set_epoch(epoch)"
        return f"line {loop.lineno}: begin each epoch with {call}", "", []
    edits = []
    if counter.id == "_":
        edits.append(script.source.replace(counter, "epoch"))
    epoch = "epoch" if counter.id == "_" else counter.id
    lines = [f"{name}.sampler.set_epoch({epoch})  # Another order in each epoch."]
    return "", "", [*edits, script.source.before(first, lines)]


def _seen_from(script: Script, loader: Loader, loop: ast.AST) -> str:
    """Return a name of the loader that can be used inside a loop."""
    scope = script.names.scope(loop)
    inside = [node for node in ast.walk(loop) if isinstance(node, ast.Name | ast.Attribute)]
    places = loader.places - script.names.bars
    for node in inside:
        if script.names.scope(node) is scope and script.names.place(node) in places:
            return script.source.of(node)
    holder = script.names.owner(scope)
    for where, name in sorted(places, key=lambda each: each[1]):
        if where is scope or where is script.names.tree:
            return name
        if holder and where is holder:
            return f"self.{name}"
    for call in (node for node in inside if isinstance(node, ast.Attribute)):
        kind = script.names.instance(call.value)
        found = [name for where, name in places if where is kind]
        if kind and found:
            return f"{script.source.of(call.value)}.{found[0]}"
    return ""
