"""Step 3: give each rank its own share of the training data with a DistributedSampler.

Dividing the batch size by the number of ranks keeps the global batch and the loss the same.
"""

import ast

from scalewise.port.loss_averages import fix_averages, loss_averages, name_in_scope, visible_names
from scalewise.port.name_tracking import argument_values, dotted_name, keyword_value, last_name
from scalewise.port.patch import Edit, Step
from scalewise.port.serial_script import Loader, Script

SHARE_HINT = "give each rank its own share: "
SHARE_COMMENT = "# Each rank reads its own share, in the order of the sampler."
BATCH_COMMENT = [
    "# The batch is divided so that the global batch stays as it was; undivided, it would",
    "# grow with the number of ranks, and the learning rate might have to grow as well.",
]
OTHER_LOADERS_COMMENT = "# Other loaders are not sharded: every rank validates on all of the data."

SAMPLERS = ("DistributedSampler", "split_dataset_by_node", "DistributedBatchSampler")
"""Calls that already give each rank its own share."""
LARGE_BATCH = 8
"""A smaller batch is divided as ``max(1, …)``, because there may be more ranks than samples."""
MAX_INLINE_CHARACTERS = 20
"""A longer expression for ``shuffle`` is first assigned to a variable."""


def sharding_step(script: Script) -> Step:
    """Return the step by which each rank reads its own share, reshuffled in each epoch."""
    name, message = "share of the data", ""
    samplers, loader = script.calls(*SAMPLERS), script.train_loader
    # Whether the training loader was chosen by its arguments and name alone.
    is_guessed = loader is not None and not script.is_read_in_training(loader)
    edits: list[Edit] = []
    if samplers:
        never_shuffles = all("shuffle=False" in script.source.text_of(call) for call in samplers)
        has_one_epoch = not script.epoch_loop and not is_guessed
        if never_shuffles or has_one_epoch or script.calls("set_epoch"):
            return Step(name, "present", f"line {samplers[0].lineno}: {last_name(samplers[0])}")
        message = "there is a sampler, but set_epoch is never called"
        problem, edits = _set_epoch_edits(script, loader)
    elif not loader:
        problem = _no_loader_problem(script)
    elif problem := _sharding_problem(script, loader):
        problem = f"line {loader.call.lineno}: {problem}"
    else:
        message = f"line {loader.call.lineno}: every rank would read all of it"
        averages = fix_averages(script, loader)
        edits = [*_shard_loader(script, loader), *_seed_splits(script), *averages]
        if _may_shuffle(script, loader) or is_guessed:
            problem, epoch_edits = _set_epoch_edits(script, loader)
            edits += epoch_edits
    return Step(name, "by hand" if problem else "missing", problem or message, tuple(edits))


def _no_loader_problem(script: Script) -> str:
    if not script.loaders:
        return (
            f"the batches are not made by a DataLoader; {SHARE_HINT}data[RANK::WORLD_SIZE], or, if "
            "batches are drawn at random, its own seed; and divide the batch by WORLD_SIZE"
        )
    lines = ", ".join(str(loader.call.lineno) for loader in script.loaders)
    hint = "DataLoader(…, sampler=DistributedSampler(dataset)), batch size // WORLD_SIZE, "
    hint += "and loader.sampler.set_epoch(epoch) in each epoch"
    return f"line {lines}: cannot tell which loader is for training; {SHARE_HINT}{hint}"


def _sharding_problem(script: Script, loader: Loader) -> str:
    """Return why the patch cannot give this loader a sampler; empty if it can."""
    call = loader.call
    if keyword_value(call, "sampler") or keyword_value(call, "batch_sampler"):
        return "the loader already has a sampler; let it draw only the share of rank RANK"
    # The sampler is the fourth parameter of DataLoader.
    if len(call.args) > 3 or any(isinstance(argument, ast.Starred) for argument in call.args):
        return "the loader's arguments are given by position; name them, then port again"
    shuffle = loader.argument("shuffle", 2)
    # One call builds several loaders: only a shuffle that its callers set marks the training one.
    if loader.build_count > 1 and (shuffle is None or isinstance(shuffle, ast.Constant)):
        return (
            f"one function makes the loaders for training and testing; {SHARE_HINT}a "
            "DistributedSampler for the training loader only, batch size // WORLD_SIZE"
        )
    compound_nodes = (ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.Dict, ast.Lambda)
    if any(isinstance(node, compound_nodes) for node in script.names.ancestors(call)):
        return "several loaders are made in one expression; separate them, then port again"
    if isinstance(script.statement(call), ast.FunctionDef | ast.ClassDef):
        return "the loader is on the same line as a def; move it to the next, then port again"
    if not loader.argument("dataset", 0):
        return "the loader has no visible dataset; pass it as dataset=, then port again"
    for name, class_node in script.names.classes.items():
        if "IterableDataset" in map(script.names.short_name, class_node.bases):
            return f"{name} is an IterableDataset; let it yield only the share of rank RANK"
    return ""


def _free_name(script: Script, name: str) -> str:
    """Return ``name``, made longer until the script does not use it."""
    used = {node.id for node in script.names.nodes if isinstance(node, ast.Name)}
    used |= {node.arg for node in script.names.nodes if isinstance(node, ast.arg)}
    return name if name not in used else _free_name(script, f"{name}_of_rank")


def _shard_loader(script: Script, loader: Loader) -> list[Edit]:
    """Return the edits that build a sampler before the loader and pass it to the loader."""
    source, call = script.source, loader.call
    batch, shuffle = loader.argument("batch_size", 1), loader.argument("shuffle", 2)
    divides_batch = batch is not None and source.text_of(batch) != "None"
    options = _options_name(call)
    options_may_shuffle = shuffle is None and _mentions_shuffle(script)
    # The call's **options may set the batch size or shuffle: then they have to be changed.
    changes_options = options and (batch is None or options_may_shuffle)
    if shuffle is not None:
        shuffle_text = source.text_of(shuffle)
    else:
        shuffle_text = f'{options}.get("shuffle", False)' if changes_options else "False"
    dataset, lines, edits = _named_dataset(script, loader)
    lines += [SHARE_COMMENT, *(BATCH_COMMENT if divides_batch or changes_options else [])]
    lines += [OTHER_LOADERS_COMMENT] if max(len(script.loaders), loader.build_count) > 1 else []
    share_count, share_index = "WORLD_SIZE", "RANK"
    if loader.build_count > 1:
        # The function also builds the test loader. Only a loader that shuffles is sharded; any
        # other loader has 1 share, and its index RANK % 1 is 0.
        share_count = _free_name(script, "share")
        share_index = f"RANK % {share_count}"
        lines.append(f"{share_count} = WORLD_SIZE if {shuffle_text} else 1")
    elif len(shuffle_text) > MAX_INLINE_CHARACTERS:
        shuffle_name = _free_name(script, "shuffle")
        lines.append(f"{shuffle_name} = {shuffle_text}")
        shuffle_text = shuffle_name
    sampler = _free_name(script, "train_sampler")
    arguments = f"{dataset}, {share_count}, {share_index}, shuffle={shuffle_text}"
    lines.append(f"{sampler} = DistributedSampler({arguments})")
    if changes_options:
        option_lines, option_edits = _replace_options(script, loader, sampler, share_count)
        lines += option_lines
        edits += option_edits
    else:
        edits.append(_pass_sampler(script, call, shuffle, sampler))
    if batch is not None and divides_batch:
        edits.append(_divide_batch(script, batch, share_count))
    return [source.insert_before(script.statement(call), lines), *edits]


def _named_dataset(script: Script, loader: Loader) -> tuple[str, list[str], list[Edit]]:
    """Return the dataset's name; if it has none, also the line and edit that give it a name."""
    dataset = loader.argument("dataset", 0)
    assert dataset is not None
    text = script.source.text_of(dataset)
    if dotted_name(dataset):
        return text, [], []
    name = _free_name(script, "train_set")
    return name, [f"{name} = {text}"], [script.source.replace(dataset, name)]


def _replace_options(
    script: Script, loader: Loader, sampler: str, share_count: str
) -> tuple[list[str], list[Edit]]:
    """Return the lines and edits that pass the sampler in a copy of the loader's ``**options``."""
    source, call = script.source, loader.call
    name = _free_name(script, "train_options")
    lines = [f"{name} = dict({_options_name(call)}, sampler={sampler}, shuffle=False)"]
    if loader.argument("batch_size", 1) is None:
        lines.append(f'{name}["batch_size"] = max(1, {name}["batch_size"] // {share_count})')
    options = next(keyword.value for keyword in call.keywords if keyword.arg is None)
    edits = [source.replace(options, name)]
    if (shuffle := loader.argument("shuffle", 2)) is not None:
        # Remove the shuffle argument, and the comma before it.
        start, end = source.span(shuffle)
        earlier_ends = [source.span(value)[1] for value in argument_values(call)
                        if source.span(value) < (start, end)]  # fmt: skip
        edits.append(Edit(max(earlier_ends), end, ""))
    return lines, edits


def _pass_sampler(script: Script, call: ast.Call, shuffle: ast.expr | None, sampler: str) -> Edit:
    """Return the edit that passes ``sampler=`` without ``shuffle``; DataLoader refuses both."""
    if shuffle is None:
        return script.source.append_argument(call, f"sampler={sampler}")
    keyword = next((keyword for keyword in call.keywords if keyword.value is shuffle), None)
    start, end = script.source.span(keyword or shuffle)[0], script.source.span(shuffle)[1]
    return Edit(start, end, f"sampler={sampler}")


def _divide_batch(script: Script, batch: ast.expr, share_count: str) -> Edit:
    """Return the edit that divides the batch size, with ``max(1, …)`` if it may be small."""
    text = script.source.text_of(batch)
    if not isinstance(batch, ast.Name | ast.Attribute | ast.Constant | ast.Call | ast.Subscript):
        text = f"({text})"
    variable = script.names.variable(batch)
    values = script.names.assigned_values({variable}) if variable else []
    is_large = all(
        isinstance(value, ast.Constant)
        and isinstance(value.value, int)
        and value.value >= LARGE_BATCH
        for value in values or [batch]
    )
    divided = f"{text} // {share_count}"
    return script.source.replace(batch, divided if is_large else f"max(1, {divided})")


def _options_name(call: ast.Call) -> str:
    """Return ``options`` of a call with ``**options``; empty if there is no such argument."""
    return next(
        (dotted_name(keyword.value) for keyword in call.keywords if keyword.arg is None), ""
    )


def _may_shuffle(script: Script, loader: Loader) -> bool:
    shuffle = loader.argument("shuffle", 2)
    if shuffle is None:
        return bool(_options_name(loader.call)) and _mentions_shuffle(script)
    return not (isinstance(shuffle, ast.Constant) and shuffle.value is False)


def _mentions_shuffle(script: Script) -> bool:
    """Return whether the script sets or reads ``shuffle`` as a key of some dictionary."""
    constants = [node.value for node in script.names.nodes if isinstance(node, ast.Constant)]
    calls = script.calls("dict", "update", "setdefault")
    return "shuffle" in constants or any(keyword_value(call, "shuffle") for call in calls)


def _seed_splits(script: Script) -> list[Edit]:
    """Return edits that seed random_split alike on all ranks; none if the script sets a seed."""
    if script.calls("manual_seed", "seed_everything"):
        return []
    text = "generator=torch.Generator().manual_seed(0)"
    return [
        script.source.append_argument(call, text)
        for call in script.calls("random_split")
        if not keyword_value(call, "generator")
    ]


def wrong_averages(script: Script) -> list[int]:
    """Return lines that divide a rank's sum by the number of all samples and get no edit."""
    loader = script.train_loader
    if not loader:
        return []
    applies_edits = not script.calls(*SAMPLERS) and not _sharding_problem(script, loader)
    return sorted(
        {line for line, edit in loss_averages(script, loader) if not (edit and applies_edits)}
    )


def _set_epoch_edits(script: Script, loader: Loader | None) -> tuple[str, list[Edit]]:
    """Return (problem for the user to solve, or ""; the edits that call ``set_epoch``)."""
    loop = script.epoch_loop
    if loader and not script.is_read_in_training(loader):
        name = min(map(name_in_scope, loader.aliases), default="loader")
        return (
            f"line {loader.call.lineno}: assumed to be the training loader, by arguments and name; "
            f"begin each epoch with {name}.sampler.set_epoch(epoch)",
            [],
        )
    if not loader or not loop:
        return "", []
    name = _loader_name_in(script, loader, loop)
    instruction = f"begin each epoch with {name or 'train_loader'}.sampler.set_epoch(epoch)"
    problem = f"line {loop.lineno}: {instruction}"
    if not name or not isinstance(loop, ast.For):
        return problem, []
    counter = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
    if not isinstance(counter, ast.Name) or not script.source.begins_line(loop.body[0]):
        return problem, []
    # for _ in range(10): becomes for epoch in range(10):
    edits = [script.source.replace(counter, "epoch")] if counter.id == "_" else []
    epoch = "epoch" if counter.id == "_" else counter.id
    lines = [f"{name}.sampler.set_epoch({epoch})  # Another order in each epoch."]
    return "", [*edits, script.source.insert_before(loop.body[0], lines)]


def _loader_name_in(script: Script, loader: Loader, loop: ast.AST) -> str:
    """Return an expression for the loader that is valid inside a loop, or an empty string."""
    scope = script.names.scope(loop)
    nodes = [node for node in ast.walk(loop) if isinstance(node, ast.Name | ast.Attribute)]
    aliases = loader.aliases - script.names.iterator_variables
    for node in nodes:
        if script.names.scope(node) is scope and script.names.variable(node) in aliases:
            return script.source.text_of(node)
    if visible := visible_names(script, loader, loop):
        return visible[0]
    for attribute in (node for node in nodes if isinstance(node, ast.Attribute)):
        class_node = script.names.instance_class(attribute.value)
        names = [name for alias_scope, name in aliases if alias_scope is class_node]
        if class_node and names:
            return f"{script.source.text_of(attribute.value)}.{names[0]}"
    return ""
