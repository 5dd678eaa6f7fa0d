"""Track values through one file: which variables may hold this model or this loader?

A *variable* is a scope and a name: ``(main, "model")``; ``(Trainer, "model")`` for ``self.model``;
``(main, "return")`` for what main returns, or ``(main, "return 0")`` for a tuple's first element.
Values flow by assignment, as arguments and as return values.
"""

import ast
from collections.abc import Collection, Iterator
from functools import cached_property

Variable = tuple[ast.AST, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef

SELF_RETURNING_METHODS = {
    "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "train", "eval",
}  # fmt: skip
"""Methods that return the object they are called on."""
WRAPPERS = {"compile", "DataParallel", "DistributedDataParallel", "DDP", "convert_sync_batchnorm"}
"""Functions that return the model they get in another form."""
ITERATORS = {"enumerate", "iter", "tqdm", "track", "islice"}
"""Functions that iterate over their first argument."""


def dotted_name(node: ast.AST | None) -> str:
    """Return a name such as ``torch.optim.SGD`` as it is written; empty for other expressions.

    >>> dotted_name(ast.parse("torch.optim.SGD", mode="eval").body)
    'torch.optim.SGD'
    """
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (prefix := dotted_name(node.value)):
        return f"{prefix}.{node.attr}"
    return ""


def last_name(node: ast.AST) -> str:
    """Return the last part of a name or of a call's name: ``DataLoader`` of ``D.DataLoader(…)``."""
    func = node.func if isinstance(node, ast.Call) else node
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def argument_values(call: ast.Call) -> list[ast.expr]:
    """Return the values of all arguments of a call, positional ones first."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def keyword_value(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument; None if the call does not pass it."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


class Names:
    """The scopes of a script, and how values flow between its variables."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = list(ast.walk(tree))
        self.parent = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.functions = [node for node in self.nodes if isinstance(node, Function)]
        self.classes = {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}
        scopes: list[ast.AST] = [*self.functions, tree]
        self.bound_names = {scope: set(_bound_names(scope)) for scope in scopes}
        self.imported: dict[Variable | None, str] = {
            (self.scope(node), bound): name
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for bound, name in _imported_names(node)
        }
        """The full name of what each imported variable refers to."""
        self._class_of: dict[Variable | None, ast.ClassDef] = {}
        for target, assigned in self.assignments():
            value = self.unwrap(assigned)
            class_node = self.classes.get(last_name(value)) if isinstance(value, ast.Call) else None
            if class_node and (variable := self.variable(target)):
                self._class_of[variable] = class_node
        self._flows = list(self._variable_flows())
        self.iterator_variables = {
            self.variable(target)
            for target, value in self.assignments()
            if isinstance(value, ast.Call) and self.short_name(value) in ITERATORS
        }
        """Variables that hold an iterator over a loader, for example a progress bar."""

    @cached_property
    def reads(self) -> list[ast.Name | ast.Attribute]:
        """Every name and attribute that is read."""
        names = (node for node in self.nodes if isinstance(node, ast.Name | ast.Attribute))
        return [node for node in names if isinstance(node.ctx, ast.Load)]

    def full_name(self, node: ast.AST) -> str:
        """Return the dotted name of a node, or of what it calls, with imports resolved.

        >>> names = Names(ast.parse("from torch import optim as O; O.SGD"))
        >>> names.full_name(names.tree.body[1].value)
        'torch.optim.SGD'
        """
        func = node.func if isinstance(node, ast.Call) else node
        name_in_script = dotted_name(func)
        if not name_in_script:
            return ""
        root = next(part for part in ast.walk(func) if isinstance(part, ast.Name))
        full_root = self.imported.get(self.variable(root), root.id)
        return full_root + name_in_script.removeprefix(root.id)

    def short_name(self, node: ast.AST) -> str:
        """Return the last part of the full name: ``SGD`` of ``torch.optim.SGD``."""
        return self.full_name(node).rpartition(".")[2] or last_name(node)

    def unwrap(self, node: ast.expr) -> ast.expr:
        """Return the value that calls pass through: ``model`` of ``torch.compile(model.to(d))``."""
        while isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in SELF_RETURNING_METHODS:
                node = node.func.value
            elif self.short_name(node) in WRAPPERS | ITERATORS and node.args:
                node = node.args[0]
            else:
                break
        return node

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that enclose a node, innermost first."""
        while node in self.parent:
            node = self.parent[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the function that contains a node, or the module."""
        return next(
            (outer for outer in self.ancestors(node) if isinstance(outer, Function)), self.tree
        )

    def owner_class(self, function: ast.AST) -> ast.ClassDef | None:
        """Return the class a method belongs to; None for other functions."""
        parent = self.parent.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def variable(self, node: ast.AST | None) -> Variable | None:
        """Return the variable that a name or attribute refers to."""
        if isinstance(node, ast.Name):
            for scope in [self.scope(node), *self.ancestors(self.scope(node))]:
                if node.id in self.bound_names.get(scope, ()):
                    return scope, node.id
            return self.tree, node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if owner := self.instance_class(node.value):
                return owner, node.attr
            base = self.variable(node.value)
            return (base[0], f"{base[1]}.{node.attr}") if base else None
        return None

    def instance_class(self, node: ast.AST) -> ast.ClassDef | None:
        """Return the class of this file that a name, such as ``self``, is an instance of."""
        is_self = isinstance(node, ast.Name) and node.id == "self"
        owner = self.owner_class(self.scope(node)) if is_self else None
        return owner or self._class_of.get(self.variable(node))

    def instances(self, class_node: ast.ClassDef) -> list[Variable]:
        """Return the variables that hold an instance of a class of this file."""
        classes = self._class_of.items()
        return [variable for variable, owner in classes if variable and owner is class_node]

    def aliases(self, start: Variable | None) -> set[Variable]:
        """Return a variable and all variables its value flows to."""
        return _reachable(start, self._flows)

    def sources(self, end: Variable | None) -> set[Variable]:
        """Return a variable and all variables from which a value flows to it."""
        return _reachable(end, [(target, source) for source, target in self._flows])

    def possible_values(self, node: ast.expr) -> list[ast.expr]:
        """Return the expressions whose values a name may hold; of another node, the node itself."""
        variable = self.variable(node)
        if variable is None:
            return [node]
        sources = self.sources(variable)
        return [
            value
            for value, target in self._bindings()
            if target in sources and not self.variable(value)
        ]

    def first_target(self, value: ast.expr) -> Variable | None:
        """Return the variable that an expression's value is bound to first."""
        return next((target for bound, target in self._bindings() if bound is value), None)

    def callee(self, call: ast.Call) -> Function | None:
        """Return the function of this file that is called; for a class, its ``__init__``."""
        if isinstance(call.func, ast.Name) and call.func.id in self.classes:
            return _method(self.classes[call.func.id], "__init__")
        if isinstance(call.func, ast.Attribute):
            class_node = self.instance_class(call.func.value)
            return _method(class_node, call.func.attr) if class_node else None
        name = last_name(call)
        named = (function for function in self.functions if function.name == name)
        return next((function for function in named if not self.owner_class(function)), None)

    def calls_to(self, function: ast.AST) -> list[ast.Call]:
        """Return every call of a function of this file."""
        return [call for call in self.calls() if self.callee(call) is function]

    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    def assignments(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Yield every assignment target with its value; ``a, b = c, d`` yields two such pairs."""
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                value = node.value
                for target in node.targets:
                    targets, values = getattr(target, "elts", []), getattr(value, "elts", [])
                    if targets and len(targets) == len(values):
                        yield from zip(targets, values)
                    else:
                        yield target, value
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
                yield node.target, node.value
            elif isinstance(node, ast.withitem) and node.optional_vars:
                yield node.optional_vars, node.context_expr

    def assigned_values(self, variables: Collection[Variable | None]) -> list[ast.expr]:
        """Return every value that is assigned to one of these variables."""
        return [value for target, value in self.assignments() if self.variable(target) in variables]

    def _bindings(self) -> Iterator[tuple[ast.expr, Variable]]:
        """Yield every expression that is bound to a variable, with that variable."""
        for target, value in self.assignments():
            if variable := self.variable(target):
                yield self.unwrap(value), variable
        for node in self.nodes:
            if isinstance(node, ast.Return) and node.value:
                scope = self.scope(node)
                if isinstance(node.value, ast.Tuple):
                    for index, element in enumerate(node.value.elts):
                        yield self.unwrap(element), (scope, f"return {index}")
                else:
                    yield self.unwrap(node.value), (scope, "return")
            elif isinstance(node, ast.Call) and (function := self.callee(node)):
                for parameter, value in self.passed_arguments(node, function):
                    yield self.unwrap(value), (function, parameter)

    def passed_arguments(
        self, call: ast.Call, function: Function
    ) -> Iterator[tuple[str, ast.expr]]:
        """Yield the parameters of a function with the values that a call passes for them."""
        args = function.args
        parameters = [parameter.arg for parameter in [*args.posonlyargs, *args.args]]
        # No argument is passed for self.
        yield from zip(parameters[1:] if self.owner_class(function) else parameters, call.args)
        for keyword in call.keywords:
            if keyword.arg:
                yield keyword.arg, keyword.value

    def _variable_flows(self) -> Iterator[tuple[Variable, Variable]]:
        """Yield (source, target) for every value that flows between two variables."""
        for value, target in self._bindings():
            if source := self.variable(value):
                yield source, target
            elif isinstance(value, ast.Call) and (function := self.callee(value)):
                yield (function, "return"), target
        for node in self.nodes:  # a, b = function()
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
                continue
            callee = self.callee(node.value)
            if callee and isinstance(node.targets[0], ast.Tuple):
                for index, element in enumerate(node.targets[0].elts):
                    if variable := self.variable(element):
                        yield (callee, f"return {index}"), variable


def _reachable(start: Variable | None, flows: list[tuple[Variable, Variable]]) -> set[Variable]:
    reached: set[Variable] = set()
    new = {start} if start else set()
    while new:
        reached |= new
        new = {target for source, target in flows if source in new} - reached
    return reached


def _method(class_node: ast.ClassDef, name: str) -> Function | None:
    methods = (node for node in class_node.body if isinstance(node, Function))
    return next((method for method in methods if method.name == name), None)


def _imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, with the full name of what it refers to."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            package = alias.name.partition(".")[0]
            yield package, package


def _bound_names(scope: ast.AST) -> Iterator[str]:
    """Yield the names bound in a function or the module, but not in functions inside of it."""
    if isinstance(scope, Function):
        args = scope.args
        for parameter in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
            if parameter:
                yield parameter.arg
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        pending += ast.iter_child_nodes(node)
