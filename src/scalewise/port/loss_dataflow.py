"""Find the values that differ between ranks, because they depend on the loss of a rank's batches.

A value assigned under a condition on such a value differs too; a collective makes it equal again.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from scalewise.port.name_tracking import Function, Variable, argument_values, dotted_name
from scalewise.port.serial_script import Comprehension, Script

COLLECTIVES = (
    "all_reduce", "broadcast", "all_gather", "all_gather_object", "broadcast_object_list",
)  # fmt: skip
NO_GRADIENT_CONTEXTS = {"no_grad", "inference_mode"}
CONDITIONAL_BLOCKS = (
    ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For,
    ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler, ast.match_case,
)  # fmt: skip
"""Blocks whose statements may be skipped, unlike those of a ``with``; and the module."""
WRITING_NODES = (ast.stmt, ast.NamedExpr, ast.withitem)
"""Nodes that assign to a target: ``a = 1``, ``a := 1``, ``with … as a``."""


@dataclass(frozen=True, eq=False)
class Write:
    """A write to a variable: the node that writes, what it writes, and (line, column)."""

    variable: Variable
    node: ast.AST
    values: list[ast.AST]
    position: tuple[int, int]
    replaces: bool = False
    """Whether the previous value is lost, unlike with ``+=`` or ``append``."""


@dataclass(frozen=True)
class RankDifferences:
    """The values of a script that would differ between ranks."""

    script: Script
    _writes: dict[Variable, list[Write]] = field(default_factory=dict, init=False)
    _differing_writes: set[Write] = field(default_factory=set, init=False)
    """Writes of a differing value."""
    _differing_functions: set[ast.AST] = field(default_factory=set, init=False)
    """Functions that return a differing value."""
    _equalized: set[Variable | None] = field(default_factory=set, init=False)
    """Variables that a collective makes equal on all ranks."""

    def __post_init__(self) -> None:
        writes = sorted(self._find_writes(), key=lambda write: write.position)
        for write in writes:
            self._writes.setdefault(write.variable, []).append(write)
        for call in self.script.calls(*COLLECTIVES):
            self._equalized.update(map(self.script.names.variable, ast.walk(call)))
        self._differing_writes.update(self._model_outputs_and_losses(writes))
        returns = [node for node in self.script.names.nodes if isinstance(node, ast.Return)]
        old_size = -1
        # Propagate until the two sets stop growing.
        while (size := len(self._differing_writes) + len(self._differing_functions)) > old_size:
            old_size = size
            self._differing_writes.update(
                write
                for write in writes
                if write not in self._differing_writes
                and any(map(self.differs, [*write.values, *self.conditions(write.node)]))
            )
            self._differing_functions.update(
                self.script.names.scope(node)
                for node in returns
                if node.value and self.differs(node.value)
            )

    def differs(self, expression: ast.AST) -> bool:
        """Return whether an expression may have different values on different ranks."""
        for node in ast.walk(expression):
            if isinstance(node, ast.Call) and self._returns_differing(node):
                return True
            if self.script.names.variable(node) not in self._equalized and any(
                write in self._differing_writes for write in self._reaching_writes(node)
            ):
                return True
        return False

    def conditions(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield the test of every ``if`` and ``while`` in the same function that guards a node."""
        child = node
        for outer in self.script.names.ancestors(node):
            if isinstance(outer, Function):
                return
            if isinstance(outer, ast.If | ast.While) and child is not outer.test:
                yield outer.test
            child = outer

    def _returns_differing(self, call: ast.Call) -> bool:
        """Return whether a call's result differs: not if the call gets a validation loader."""
        if self.script.names.callee(call) not in self._differing_functions:
            return False
        train_loader = self.script.train_loader
        other_loaders = {
            variable
            for loader in self.script.loaders
            if train_loader and not loader.aliases & train_loader.aliases
            for variable in loader.aliases
        }
        variables = map(self.script.names.variable, argument_values(call))
        return not any(variable in other_loaders for variable in variables)

    def _model_outputs_and_losses(self, writes: list[Write]) -> Iterator[Write]:
        """Yield the writes in which a difference begins: model outputs in training, and losses."""
        models, variable_of = self.script.model_variables, self.script.names.variable
        for write in writes:
            calls = (node for node in _walk_all(write.values) if isinstance(node, ast.Call))
            if any(variable_of(call.func) in models for call in calls) and self._in_training(write):
                yield write
        for node in _walk_all(self.script.backward_calls):
            for write in self._reaching_writes(node):
                # A write without a call, such as loss = 0, is the same on all ranks.
                if any(isinstance(part, ast.Call) for part in _walk_all(write.values)):
                    yield write

    def _in_training(self, write: Write) -> bool:
        names = self.script.names
        for outer in names.ancestors(write.node):
            if isinstance(outer, ast.With) and any(
                isinstance(item.context_expr, ast.Call)
                and names.short_name(item.context_expr) in NO_GRADIENT_CONTEXTS
                for item in outer.items
            ):
                return False
            if isinstance(outer, ast.For | ast.While):
                return outer in self.script.training_loops
            if isinstance(outer, Function):
                return any(names.scope(call) is outer for call in self.script.backward_calls)
        return False

    def _reaching_writes(self, read: ast.AST) -> Iterator[Write]:
        """Yield the writes whose value a read may see (reaching definitions)."""
        names = self.script.names
        variable = names.variable(read)
        if variable is None:
            return
        scope, ancestors = names.scope(read), set(names.ancestors(read))
        writes = self._writes.get(variable, [])
        # The last write before the read that always replaces the value: it hides earlier ones.
        replacing: ast.AST | None = None
        for write in reversed(writes):
            if names.scope(write.node) is not scope or variable[0] is not scope:
                yield write  # The order of writes in different functions is unknown.
            elif replacing is None and _comes_before(write, read, ancestors):
                yield write
                if write.replaces and self._always_runs_before(write.node, ancestors):
                    replacing = write.node
        # Later writes reach the read through the next iteration of a loop around both,
        # unless the loop also contains the replacing write.
        loops = {node for node in ancestors if isinstance(node, ast.For | ast.While)}
        if replacing:
            loops -= {replacing, *names.ancestors(replacing)}
        for write in writes:
            if write.position >= _position(read) and loops & set(names.ancestors(write.node)):
                yield write

    def _always_runs_before(self, write: ast.AST, read_ancestors: set[ast.AST]) -> bool:
        """Return whether an earlier write has always run when a read with these ancestors runs."""
        if isinstance(write, ast.For | Comprehension):  # A loop without iterations writes nothing.
            return write in read_ancestors
        outer = self.script.names.ancestors(write)
        block = next(node for node in outer if isinstance(node, CONDITIONAL_BLOCKS))
        return block in read_ancestors

    def _find_writes(self) -> Iterator[Write]:
        names = self.script.names
        for target, value in names.assignments():
            outer = names.ancestors(target)
            writing_node = next(node for node in outer if isinstance(node, WRITING_NODES))
            yield from self._target_writes(target, writing_node, [value])
        for node in names.nodes:
            if isinstance(node, ast.AugAssign):
                yield from self._target_writes(node.target, node, [node.value], replaces=False)
            elif isinstance(node, ast.For):
                yield from self._target_writes(node.target, node, [node.iter])
            elif isinstance(node, ast.comprehension):
                yield from self._target_writes(node.target, names.parent[node], [node.iter])
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                yield from self._object_writes(node.value, node)
            elif isinstance(node, ast.Call) and (function := names.callee(node)):
                yield from self._parameter_writes(node, function)

    def _target_writes(
        self, target: ast.AST, node: ast.AST, values: list[ast.AST], *, replaces: bool = True
    ) -> Iterator[Write]:
        if isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                yield from self._target_writes(element, node, values, replaces=replaces)
        elif isinstance(target, ast.Subscript | ast.Starred):
            yield from self._target_writes(target.value, node, values, replaces=False)
        elif variable := self.script.names.variable(target):
            yield Write(variable, node, values, _position(target), replaces)

    def _object_writes(self, call: ast.Call, node: ast.stmt) -> Iterator[Write]:
        """Yield a write if a call may change an object: ``losses.append(x)``, ``stopper(x)``."""
        names = self.script.names
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        variable = names.variable(receiver)
        ignored = {*names.imported, *names.iterator_variables}
        if variable and variable[1] != "self" and variable not in ignored:
            yield Write(variable, node, [*call.args, *call.keywords], _position(call))

    def _parameter_writes(self, call: ast.Call, function: Function) -> Iterator[Write]:
        """Yield a write of each parameter that a call sets; skip methods not called on ``self``."""
        is_method = self.script.names.owner_class(function) is not None
        if is_method and not dotted_name(call.func).startswith("self."):
            return
        for name, value in self.script.names.passed_arguments(call, function):
            yield Write((function, name), function, [value], _position(function))


def _walk_all(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _position(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]  # Statements have both.


def _comes_before(write: Write, read: ast.AST, ancestors: set[ast.AST]) -> bool:
    """Return whether a write comes before a read; a loop writes its target before its body runs."""
    if write.node in ancestors:
        return isinstance(write.node, ast.For | Comprehension)
    return write.position < _position(read)
