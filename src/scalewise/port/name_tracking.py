"""Follow a value through a script: by which names is this model, this loader known?

A *place* is a scope and a name in it: ``(main, "model")``, ``(Trainer, "model")`` for
``self.model``. Values move between places by assignment, as arguments and as what
functions return. Only what is written in this one file is followed.
"""

import ast
from collections.abc import Iterator

Place = tuple[ast.AST, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef

HANDS_ON = {"to", "cuda", "cpu", "float", "double", "half", "bfloat16", "train", "eval"}
"""Methods that return the object they belong to."""
WRAPPERS = {"compile", "DataParallel", "DistributedDataParallel", "DDP", "convert_sync_batchnorm"}
ITERATORS = {"enumerate", "iter", "tqdm", "track", "islice"}


def dotted(node: ast.AST | None) -> str:
    """Return ``torch.optim.SGD`` as it is written, or nothing for anything but a name.

    >>> dotted(ast.parse("torch.optim.SGD", mode="eval").body)
    'torch.optim.SGD'
    """
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def last_name(node: ast.AST) -> str:
    """Return the last part of what is called: ``DataLoader`` of ``data.DataLoader(…)``."""
    func = node.func if isinstance(node, ast.Call) else node
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


class Names:
    """The scopes of a script, and how values move between its names."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = list(ast.walk(tree))
        self.parent = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.functions = [node for node in self.nodes if isinstance(node, Function)]
        self.classes = {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}
        scopes: list[ast.AST] = [*self.functions, tree]
        self._bound = {scope: set(_bound(scope)) for scope in scopes}
        self.imported = {
            (self.scope(node), bound): name
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for bound, name in _imported(node)
        }
        """Places of what is imported, with its full name."""
        self._instances: dict[Place, ast.ClassDef] = {}
        for target, handed in self.assignments():
            value = self.origin(handed)
            kind = self.classes.get(last_name(value)) if isinstance(value, ast.Call) else None
            if kind and (place := self.place(target)):
                self._instances[place] = kind
        self._moves = list(self._all_moves())
        self.bars = {
            self.place(target)
            for target, value in self.assignments()
            if isinstance(value, ast.Call) and self.last(value) in ITERATORS
        }
        """Places of something that only reads a loader: a progress bar, an iterator."""

    def full(self, node: ast.AST) -> str:
        """Return a dotted name by what was imported: ``torch.optim.SGD`` of ``O.SGD``.

        >>> names = Names(ast.parse("from torch import optim as O; O.SGD"))
        >>> names.full(names.tree.body[1].value)
        'torch.optim.SGD'
        """
        what = node.func if isinstance(node, ast.Call) else node
        written = dotted(what)
        if not written:
            return ""
        first = next(each for each in ast.walk(what) if isinstance(each, ast.Name))
        place = self.place(first)
        start = self.imported.get(place, first.id) if place else first.id
        return start + written.removeprefix(first.id)

    def last(self, node: ast.AST) -> str:
        """Return the last part of what is called, by the name it was imported from."""
        return self.full(node).rpartition(".")[2] or last_name(node)

    def origin(self, node: ast.expr) -> ast.expr:
        """Return what an expression hands on: ``model`` of ``torch.compile(model.to(device))``."""
        while isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in HANDS_ON:
                node = node.func.value
            elif self.last(node) in WRAPPERS | ITERATORS and node.args:
                node = node.args[0]
            else:
                break
        return node

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield everything that encloses a node, nearest first."""
        while node in self.parent:
            node = self.parent[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the function a node is in, or the module."""
        return next((each for each in self.above(node) if isinstance(each, Function)), self.tree)

    def owner(self, function: ast.AST) -> ast.ClassDef | None:
        """Return the class a method belongs to."""
        parent = self.parent.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def place(self, node: ast.AST | None) -> Place | None:
        """Return where the value of a name or attribute lives."""
        if isinstance(node, ast.Name):
            for scope in [self.scope(node), *self.above(self.scope(node))]:
                if node.id in self._bound.get(scope, ()):
                    return scope, node.id
            return self.tree, node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            holder = self.owner(self.scope(node)) if node.value.id == "self" else None
            base = self.place(node.value)
            holder = holder or (self._instances.get(base) if base else None)
            return (holder, node.attr) if holder else base and (base[0], f"{base[1]}.{node.attr}")
        return None

    def instance(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class of this file whose object a name holds."""
        place = self.place(node)
        return self._instances.get(place) if place else None

    def objects(self, kind: ast.ClassDef) -> list[Place]:
        """Return the places that hold an object of a class of this file."""
        return [place for place, each in self._instances.items() if each is kind]

    def bound(self, scope: ast.AST) -> set[str]:
        """Return the names that a function, or the module, binds itself."""
        return self._bound[scope]

    def known_as(self, seed: Place | None) -> set[Place]:
        """Return every place that a value comes to from one place."""
        found, fresh = set(), {seed} if seed else set()
        while fresh:
            found |= fresh
            fresh = {after for before, after in self._moves if before in fresh} - found
        return found

    def comes_from(self, place: Place | None) -> set[Place]:
        """Return every place from which a value comes to one place."""
        found, fresh = set(), {place} if place else set()
        while fresh:
            found |= fresh
            fresh = {before for before, after in self._moves if after in fresh} - found
        return found

    def values(self, node: ast.expr) -> list[ast.expr]:
        """Return what an expression may stand for: what comes to its name, or itself."""
        place = self.place(node)
        if place is None:
            return [node]
        sources = self.comes_from(place)
        return [
            value for value, after in self._values() if after in sources and not self.place(value)
        ]

    @property
    def assigned(self) -> set[Place]:
        """Every place that something is written to."""
        return {place for target, _ in self.assignments() if (place := self.place(target))}

    def held(self, call: ast.expr) -> Place | None:
        """Return where the value of an expression goes first."""
        return next((after for value, after in self._values() if value is call), None)

    def local(self, call: ast.Call) -> Function | None:
        """Return the function of this file that a call enters; a class's is its ``__init__``."""
        if isinstance(call.func, ast.Name) and call.func.id in self.classes:
            return self._method(self.classes[call.func.id], "__init__")
        if isinstance(call.func, ast.Attribute):
            base = self.place(call.func.value)
            if isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
                kind = self.owner(self.scope(call))
            else:
                kind = self._instances.get(base) if base else None
            return self._method(kind, call.func.attr) if kind else None
        name = last_name(call)
        plain = [each for each in self.functions if not self.owner(each)]
        return next((each for each in plain if each.name == name), None)

    def calls_of(self, function: ast.AST) -> list[ast.Call]:
        """Return every call of a function of this file."""
        return [each for each in self.calls() if self.local(each) is function]

    def calls(self) -> list[ast.Call]:
        """Return every call."""
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    def _method(self, kind: ast.ClassDef, name: str) -> Function | None:
        methods = [each for each in kind.body if isinstance(each, Function)]
        return next((each for each in methods if each.name == name), None)

    def assignments(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Yield every target with its value; tuples one by one."""
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from _pairs(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
                yield node.target, node.value
            elif isinstance(node, ast.withitem) and node.optional_vars:
                yield node.optional_vars, node.context_expr

    def _values(self) -> Iterator[tuple[ast.expr, Place]]:
        """Yield every expression that comes to a place, with that place."""
        for target, value in self.assignments():
            if place := self.place(target):
                yield self.origin(value), place
        for node in self.nodes:
            if isinstance(node, ast.Return) and node.value:
                several = isinstance(node.value, ast.Tuple)
                parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for index, part in enumerate(parts):
                    yield (
                        self.origin(part),
                        (self.scope(node), _returned(index if several else None)),
                    )
            elif isinstance(node, ast.Call) and (function := self.local(node)):
                names = [each.arg for each in [*function.args.posonlyargs, *function.args.args]]
                names = names[1:] if self.owner(function) else names
                for name, value in zip(names, node.args):
                    yield self.origin(value), (function, name)
                for keyword in node.keywords:
                    if keyword.arg:
                        yield self.origin(keyword.value), (function, keyword.arg)

    def _all_moves(self) -> Iterator[tuple[Place, Place]]:
        for value, after in self._values():
            if before := self.place(value):
                yield before, after
            elif isinstance(value, ast.Call) and (function := self.local(value)):
                yield (function, _returned(None)), after
        for node in self.nodes:
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
                continue
            entered = self.local(node.value)
            if entered and isinstance(node.targets[0], ast.Tuple):
                for index, target in enumerate(node.targets[0].elts):
                    if place := self.place(target):
                        yield (entered, _returned(index)), place


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, with the full name of what it means."""
    for each in node.names:
        if isinstance(node, ast.ImportFrom):
            yield each.asname or each.name, f"{node.module or ''}.{each.name}"
        else:
            yield each.asname or _first(each.name), each.name if each.asname else _first(each.name)


def _first(name: str) -> str:
    return name.partition(".")[0]


def _returned(index: int | None) -> str:
    return "return" if index is None else f"return {index}"


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if (
        isinstance(target, ast.Tuple | ast.List)
        and isinstance(value, ast.Tuple | ast.List)
        and len(target.elts) == len(value.elts)
    ):
        yield from zip(target.elts, value.elts)
    else:
        yield target, value


def _bound(scope: ast.AST) -> Iterator[str]:
    """Yield the names a function, or the module, binds itself."""
    if isinstance(scope, Function):
        every = scope.args
        for each in [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]:
            if each:
                yield each.arg
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield _first(node.asname or node.name)
        waiting += ast.iter_child_nodes(node)
