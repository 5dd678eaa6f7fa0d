"""Find the loops, loaders and models of a serial training script in its syntax tree.

Training loops are the loops around ``.backward()``, or around a call of a function that calls it;
models are the variables whose parameters go to an optimizer.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from scalewise.port.name_tracking import (
    Function,
    Names,
    Variable,
    dotted_name,
    keyword_value,
    last_name,
)
from scalewise.port.patch import Source

OPTIMIZERS = re.compile(r"optim|SGD|Adam|RMSprop")
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Loop = ast.For | ast.While | Comprehension


@dataclass(frozen=True)
class Loader:
    """A DataLoader: the call that builds it, and every variable that refers to it."""

    call: ast.Call
    aliases: frozenset[Variable]
    build_count: int
    """How many loaders ``call`` builds: a function may return a new one to each of its callers."""

    def argument(self, name: str, position: int) -> ast.expr | None:
        """Return an argument, passed by name or at this position of DataLoader's signature."""
        value = keyword_value(self.call, name)
        return value or next(iter(self.call.args[position : position + 1]), None)


@dataclass(frozen=True)
class Model:
    """A model: its name, the statement after which DDP may wrap it, and variables that hold it."""

    name: str
    statement: ast.stmt
    aliases: frozenset[Variable]


@dataclass(frozen=True)
class Script:
    """A training script."""

    path: Path
    source: Source
    names: Names
    encoding: str = "utf-8"

    @cached_property
    def backward_calls(self) -> list[ast.Call]:
        """Every call of ``.backward()``."""
        return [call for call in self.names.calls() if last_name(call) == "backward"]

    @cached_property
    def training_loops(self) -> list[Loop]:
        """The training loops, innermost first; a function's loops precede those of its callers."""
        calls = [*self.backward_calls]
        for function in self.training_functions:
            calls += self.names.calls_to(function)
        loops: dict[Loop, None] = {}  # An ordered set.
        for call in calls:
            outer_nodes = takewhile(
                lambda node: not isinstance(node, Function), self.names.ancestors(call)
            )
            loops |= dict.fromkeys(node for node in outer_nodes if isinstance(node, Loop))
        return list(loops)

    @cached_property
    def training_functions(self) -> list[ast.AST]:
        """Functions that call ``.backward()``, directly or through others; callers come later."""
        functions: list[ast.AST] = []
        pending = [*self.backward_calls]
        while pending:
            scope = self.names.scope(pending.pop(0))
            if scope is not self.names.tree and scope not in functions:
                functions.append(scope)
                pending += self.names.calls_to(scope)
        return functions

    @cached_property
    def loaders(self) -> list[Loader]:
        """Every DataLoader of the script."""
        loaders = []
        for call in self.calls("DataLoader"):
            is_returned = any(isinstance(node, ast.Return) for node in self.names.ancestors(call))
            count = len(self.names.calls_to(self.names.scope(call))) if is_returned else 1
            aliases = self.names.aliases(self.names.first_target(call))
            loaders.append(Loader(call, frozenset(aliases), max(count, 1)))
        return loaders

    @cached_property
    def train_loader(self) -> Loader | None:
        """The loader that training loops read, else the likeliest by name and arguments."""
        readers = [loader for loader in self.loaders if self.is_read_in_training(loader)]
        if readers:
            return max(readers, key=_training_hints)
        best_hints = max(map(_training_hints, self.loaders), default=())
        likeliest = [loader for loader in self.loaders if _training_hints(loader) == best_hints]
        return likeliest[0] if len(likeliest) == 1 and any(best_hints) else None

    def is_read_in_training(self, loader: Loader) -> bool:
        """Return whether a training loop iterates over a loader, or ``next()`` reads it."""
        return self.batch_loop(loader) is not None or any(
            call.args and self._reads(call.args[0], loader) for call in self.calls("next")
        )

    def batch_loop(self, loader: Loader) -> ast.For | Comprehension | None:
        """Return the training loop over a loader."""
        for loop in self.training_loops:
            if not isinstance(loop, ast.While) and any(
                self.names.unwrap(iterable) is loader.call or self._reads(iterable, loader)
                for iterable in _iterables(loop)
            ):
                return loop
        return None

    def _reads(self, node: ast.expr, loader: Loader) -> bool:
        value = self.names.unwrap(node)
        if isinstance(value, ast.Call) and self.names.short_name(value) == "zip":
            return any(self._reads(argument, loader) for argument in value.args)
        return self.names.variable(value) in loader.aliases

    @cached_property
    def epoch_loop(self) -> Loop | None:
        """The loop around the loop over the training loader."""
        loader = self.train_loader
        batch_loop = self.batch_loop(loader) if loader else None
        if not loader or not batch_loop:
            return None
        if not isinstance(batch_loop, ast.For) and not self._reads(
            _iterables(batch_loop)[0], loader
        ):
            return batch_loop  # One comprehension iterates over the epochs and their batches.
        outer = self.training_loops[self.training_loops.index(batch_loop) + 1 :]
        return outer[0] if outer else None

    @cached_property
    def models(self) -> list[Model]:
        """The models whose parameters go to an optimizer, and where they can be wrapped."""
        trained = self._trained_variables()
        models: list[Model] = []
        # Also assignments of an argument, such as ``self.model = model``; used if no other exists.
        all_assigned: list[Model] = []
        for statement, target, value in self._single_assignments():
            aliases = frozenset(self.names.aliases(self.names.variable(target)))
            if not aliases & trained:
                continue
            assigned = Model(self.source.text_of(target), statement, aliases)
            all_assigned.append(assigned)
            function = self.names.scope(statement)
            is_returned = any(
                scope is function and name.startswith("return") for scope, name in aliases
            )
            if isinstance(value, ast.Name | ast.Attribute) or is_returned:
                continue  # The model was created before, or a caller gets and wraps it.
            if any(aliases & model.aliases for model in models):
                models = [self._merge(model, assigned) for model in models]
            else:
                models.append(assigned)
        return [self._wrap_after_device_move(model) for model in models or all_assigned[:1]]

    @cached_property
    def model_variables(self) -> set[Variable]:
        """Every variable that holds a model."""
        return {variable for model in self.models for variable in model.aliases}

    def _trained_variables(self) -> set[Variable]:
        """Return variables whose ``.parameters()`` an optimizer gets; if there are none, all."""
        calls = [call for call in self.calls("parameters") if isinstance(call.func, ast.Attribute)]
        optimized = [
            call
            for call in calls
            for node in self.names.ancestors(call)
            if isinstance(node, ast.Call) and OPTIMIZERS.search(self.names.full_name(node))
        ]
        owners = map(self._parameter_owners, optimized or calls)
        return {variable for variables in owners for variable in variables}

    def _merge(self, model: Model, later: Model) -> Model:
        """Return the model, to be wrapped after a later assignment if no training lies between."""
        if not later.aliases & model.aliases:
            return model
        blocks = [self.siblings(outer) for outer in self._enclosing_statements(model.statement)]
        # The later assignment, or the statement around it that shares a block with the model.
        in_same_block = (
            outer
            for outer in self._enclosing_statements(later.statement)
            if any(self.siblings(outer) is block for block in blocks)
        )
        end = next(in_same_block, None)
        if end is None:
            return model
        lines = range(model.statement.lineno + 1, end.lineno + 1)
        if any(self.trains(sibling) for sibling in self.siblings(end) if sibling.lineno in lines):
            return model  # A model assigned after training is not the trained one.
        return Model(model.name, end, model.aliases | later.aliases)

    def trains(self, statement: ast.stmt) -> bool:
        """Return whether a statement contains a training loop or calls a training function."""
        return any(
            node in self.training_loops
            or (isinstance(node, ast.Call) and self.names.callee(node) in self.training_functions)
            for node in ast.walk(statement)
        )

    def _enclosing_statements(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return a statement and the statements that contain it, innermost first."""
        nodes = [statement, *self.names.ancestors(statement)]
        return [node for node in nodes if isinstance(node, ast.stmt)]

    def _wrap_after_device_move(self, model: Model) -> Model:
        """Return the model, to be wrapped after ``.to()`` or ``.cuda()`` in another function."""
        for call in reversed([*self.calls("to"), *self.calls("cuda")]):
            moved = self.names.unwrap(call)
            scope = self.names.scope(call)
            if self.names.variable(moved) not in model.aliases:
                continue
            if scope is not self.names.scope(model.statement) and scope is not self.names.tree:
                statement = self.statement(call)
                target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                is_model = self.names.variable(target) in model.aliases
                name = self.source.text_of(target if target and is_model else moved)
                return Model(name, statement, model.aliases)
        return model

    def _single_assignments(self) -> Iterator[tuple[ast.stmt, ast.expr, ast.expr]]:
        """Yield (statement, target, unwrapped value) of assignments to one name, in file order."""
        for node in sorted(
            (node for node in self.names.nodes if isinstance(node, ast.Assign | ast.AnnAssign)),
            key=lambda node: node.lineno,
        ):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if node.value and isinstance(target, ast.Name | ast.Attribute):
                yield node, target, self.names.unwrap(node.value)

    def _parameter_owners(self, call: ast.Call) -> Iterator[Variable]:
        """Yield the variable ``model`` of ``model.parameters()`` or ``self.model.fc.parameters()``.

        For ``self.parameters()``, yield all variables that hold an instance of the class; but none
        if the class contains the training loop: such a model cannot be wrapped from outside.
        """
        chain: list[ast.expr] = [call.func]
        while isinstance(chain[-1], ast.Attribute):
            chain.append(chain[-1].value)
        attribute = self.names.variable(chain[-2]) if len(chain) > 2 else None
        in_class = attribute is not None and isinstance(attribute[0], ast.ClassDef)
        class_node = self.names.owner_class(self.names.scope(call))
        if class_node and len(chain) == 2 and dotted_name(chain[-1]) == "self":
            if not any(function in class_node.body for function in self.training_functions):
                yield from self.names.instances(class_node)
        elif variable := attribute if in_class else self.names.variable(chain[-1]):
            yield variable

    def calls(self, *names: str) -> list[ast.Call]:
        """Return, in file order, calls of these names (last part, as written or as imported)."""
        calls = [
            call
            for call in self.names.calls()
            if last_name(call) in names or self.names.short_name(call) in names
        ]
        return sorted(calls, key=lambda call: (call.lineno, call.col_offset))

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the innermost statement that begins a line around a node: ``a`` of ``a; b``."""
        for outer in [node, *self.names.ancestors(node)]:
            if isinstance(outer, ast.stmt):
                same_line = [
                    sibling for sibling in self.siblings(outer) if sibling.lineno == outer.lineno
                ]
                if self.source.begins_line(same_line[0]):
                    return same_line[0]
        raise AssertionError("the outermost statement begins a line")

    def siblings(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return all statements of the block that contains this statement."""
        parent = self.names.parent[statement]
        lists = (value for _, value in ast.iter_fields(parent) if isinstance(value, list))
        return next(block for block in lists if statement in block)


def _iterables(loop: ast.For | Comprehension) -> list[ast.expr]:
    """Return the expressions that a loop iterates over, outermost first."""
    if isinstance(loop, ast.For):
        return [loop.iter]
    return [generator.iter for generator in loop.generators]


def _training_hints(loader: Loader) -> tuple[bool, bool, bool]:
    """Return whether a loader shuffles, has "train" in a name, and drops the last batch."""
    shuffles = is_true(loader.argument("shuffle", 2)) or loader.argument("sampler", 3) is not None
    is_named_train = any("train" in name.lower() for _, name in loader.aliases)
    return shuffles, is_named_train, is_true(loader.argument("drop_last", 8))


def is_true(node: ast.expr | None) -> bool:
    """Return whether an expression is the literal ``True``."""
    return isinstance(node, ast.Constant) and node.value is True
