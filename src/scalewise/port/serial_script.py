"""What a serial training script does, read from its syntax tree; nothing is run.

The one thing to know: training is where ``.backward()`` is called. The loops around
that call, across functions, are the training loops; the loader they read is the
training loader; the model is what the optimizer was given the parameters of.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scalewise.port.name_tracking import Function, Names, Place, dotted, last_name
from scalewise.port.patch import Source

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Loop = ast.For | ast.While | Comprehension


@dataclass(frozen=True)
class Loader:
    """A DataLoader: the call that makes it, and every name it is known by."""

    call: ast.Call
    places: frozenset[Place]
    built: int
    """How often the call is written to run: more than once if its function has more callers."""

    def argument(self, name: str, position: int) -> ast.expr | None:
        """Return an argument, whether it is given by name or by position."""
        named = [each.value for each in self.call.keywords if each.arg == name]
        given = self.call.args[position : position + 1]
        return next(iter([*named, *given]), None)


@dataclass(frozen=True)
class Model:
    """A model: the statement after which it can be wrapped, as what, and its names."""

    name: str
    statement: ast.stmt
    places: frozenset[Place]


@dataclass(frozen=True)
class Script:
    """A script that trains."""

    path: Path
    source: Source
    names: Names
    encoding: str = "utf-8"

    @cached_property
    def backwards(self) -> list[ast.Call]:
        """Every call of ``.backward()``."""
        return [each for each in self.names.calls() if last_name(each) == "backward"]

    @cached_property
    def loops(self) -> list[Loop]:
        """The training loops, from the innermost outwards, across functions."""
        found: list[Loop] = []
        waiting: list[ast.AST] = [*self.backwards]
        entered: set[ast.AST] = set()
        while waiting:
            node = waiting.pop(0)
            for each in self.names.above(node):
                if isinstance(each, Loop) and each not in found:
                    found.append(each)
                if isinstance(each, Function):
                    if each not in entered:
                        entered.add(each)
                        waiting += self.names.calls_of(each)
                    break
        return found

    @cached_property
    def training_functions(self) -> set[ast.AST]:
        """The functions in which training happens, here or further down."""
        found: set[ast.AST] = set()
        waiting: list[ast.AST] = [*self.backwards]
        while waiting:
            scope = self.names.scope(waiting.pop())
            if scope not in found:
                found.add(scope)
                waiting += self.names.calls_of(scope)
        return found - {self.names.tree}

    @cached_property
    def loaders(self) -> list[Loader]:
        """Every DataLoader of the script."""
        found = []
        for call in self.calls("DataLoader"):
            scope = self.names.scope(call)
            returned = any(isinstance(each, ast.Return) for each in self.names.above(call))
            many = len(self.names.calls_of(scope)) if returned else 1
            places = frozenset(self.names.known_as(self.names.held(call)))
            found.append(Loader(call, places, max(many, 1)))
        return found

    @cached_property
    def train_loader(self) -> Loader | None:
        """The loader that training reads: by its loops, then by shuffle, then by its name."""
        readers = [each for each in self.loaders if self.is_seen_to_train(each)]
        if readers:
            return max(readers, key=_looks_like_training)
        best = max(map(_looks_like_training, self.loaders), default=())
        likely = [each for each in self.loaders if _looks_like_training(each) == best]
        return likely[0] if len(likely) == 1 and any(best) else None

    def is_seen_to_train(self, loader: Loader) -> bool:
        """Say whether training can be seen to read a loader; else one goes by its looks."""
        return self.batch_loop(loader) is not None or self._is_read(loader)

    def batch_loop(self, loader: Loader) -> ast.For | Comprehension | None:
        """Return the training loop over a loader."""
        for loop in self.loops:
            if not isinstance(loop, ast.While) and any(
                self.names.origin(each) is loader.call or self._reads(each, loader)
                for each in _read_by(loop)
            ):
                return loop
        return None

    def _reads(self, node: ast.expr, loader: Loader) -> bool:
        inner = self.names.origin(node)
        if isinstance(inner, ast.Call) and self.names.last(inner) == "zip":
            return any(self._reads(each, loader) for each in inner.args)
        return self.names.place(inner) in loader.places

    def _is_read(self, loader: Loader) -> bool:
        """Say whether training asks a loader for its next batch without a loop over it."""
        return any(each.args and self._reads(each.args[0], loader) for each in self.calls("next"))

    @cached_property
    def epoch_loop(self) -> Loop | None:
        """The loop around the training loader's loop: one turn is one pass over the data."""
        loader = self.train_loader
        batches = self.batch_loop(loader) if loader else None
        if not loader or not batches:
            return None
        if not isinstance(batches, ast.For) and not self._reads(_read_by(batches)[0], loader):
            return batches  # One comprehension for the epochs and their batches.
        outer = self.loops[self.loops.index(batches) + 1 :]
        return outer[0] if outer else None

    @cached_property
    def models(self) -> list[Model]:
        """The models whose parameters an optimizer was given, where each can be wrapped."""
        asked = [each for each in self.calls("parameters") if isinstance(each.func, ast.Attribute)]
        tuned = [each for each in asked if self._in_optimizer(each)] or asked
        trained = {place for each in tuned for place in self._owners_of(each)}
        found: list[Model] = []
        for statement, target, value in self._made():
            places = self.names.known_as(self.names.place(target))
            made = isinstance(value, ast.Call) or not isinstance(value, ast.Name | ast.Attribute)
            again = any(places & each.places for each in found)
            if made and places & trained and not self._returned_from(statement, places):
                if again:
                    found = [self._later(each, statement, places) for each in found]
                else:
                    found.append(Model(self.source.of(target), statement, frozenset(places)))
        found = found or self._given(trained)
        return [self._moved(each) for each in found]

    def _later(self, model: Model, statement: ast.stmt, places: set[Place]) -> Model:
        """Return a model that is made at several places, after the last of them."""
        if not places & model.places:
            return model
        blocks = [self.block(each) for each in self._nest(model.statement)]
        nest = self._nest(statement)
        shared = (each for each in nest if any(self.block(each) is block for block in blocks))
        where = next(shared, None)
        if where is None:
            return model
        between = [
            each
            for each in self.block(where)
            if model.statement.lineno < each.lineno <= where.lineno
        ]
        if any(self.trains(each) for each in between):
            return model  # What is made after training is not what is trained.
        return Model(model.name, where, model.places | places)

    def trains(self, statement: ast.stmt) -> bool:
        """Say whether a statement is a training loop, or calls a function that has one."""
        return any(
            node in self.loops
            or (isinstance(node, ast.Call) and self.names.local(node) in self.training_functions)
            for node in ast.walk(statement)
        )

    def _nest(self, statement: ast.stmt) -> list[ast.stmt]:
        every = [statement, *self.names.above(statement)]
        return [each for each in every if isinstance(each, ast.stmt)]

    def _given(self, trained: set[Place]) -> list[Model]:
        """Return models that come as arguments, where they are kept: ``self.model = model``."""
        for statement, target, _ in self._made():
            places = self.names.known_as(self.names.place(target))
            if places & trained:
                return [Model(self.source.of(target), statement, frozenset(places))]
        return []

    def _moved(self, model: Model) -> Model:
        """Return a model where it is moved to its device, if that is in another function."""
        for call in reversed([*self.calls("to"), *self.calls("cuda")]):
            moved = self.names.origin(call)
            scope = self.names.scope(call)
            if self.names.place(moved) not in model.places:
                continue
            if scope is not self.names.scope(model.statement) and scope is not self.names.tree:
                statement = self.statement(call)
                name = self.source.of(moved)
                if (
                    isinstance(statement, ast.Assign)
                    and self.names.place(statement.targets[0]) in model.places
                ):
                    name = self.source.of(statement.targets[0])
                return Model(name, statement, model.places)
        return model

    def _made(self) -> Iterator[tuple[ast.stmt, ast.expr, ast.expr]]:
        """Yield every assignment to one name, as statement, target and what it hands on."""
        for node in sorted(
            (each for each in self.names.nodes if isinstance(each, ast.Assign | ast.AnnAssign)),
            key=lambda each: each.lineno,
        ):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if node.value and isinstance(target, ast.Name | ast.Attribute):
                yield node, target, self.names.origin(node.value)

    def _returned_from(self, statement: ast.stmt, places: set[Place]) -> bool:
        scope = self.names.scope(statement)
        return any(where is scope and name.startswith("return") for where, name in places)

    def _in_optimizer(self, call: ast.Call) -> bool:
        return any(
            isinstance(each, ast.Call)
            and re.search(r"optim|SGD|Adam|RMSprop", self.names.full(each))
            for each in self.names.above(call)
        )

    def _owners_of(self, call: ast.Call) -> Iterator[Place]:
        """Yield the model of ``model.parameters()`` or ``self.model.fc.parameters()``.

        A model that makes its own optimizer is every object of its class, unless it trains
        itself too: then nothing outside could be wrapped.
        """
        chain: list[ast.expr] = [call.func]
        while isinstance(chain[-1], ast.Attribute):
            chain.append(chain[-1].value)
        whole = self.names.place(chain[-2]) if len(chain) > 2 else None
        inside = whole is not None and isinstance(whole[0], ast.ClassDef)
        kind = self.names.owner(self.names.scope(call))
        if kind and len(chain) == 2 and dotted(chain[-1]) == "self":
            if not self.training_functions & set(kind.body):
                yield from self.names.objects(kind)
        elif place := whole if inside else self.names.place(chain[-1]):
            yield place

    def calls(self, *names: str) -> list[ast.Call]:
        """Return the calls of a function or method by its last name, in the order written.

        It may be known by another name: ``from torch.utils.data import DataLoader as DL``.
        """
        found = [
            each
            for each in self.names.calls()
            if last_name(each) in names or self.names.last(each) in names
        ]
        return sorted(found, key=lambda each: (each.lineno, each.col_offset))

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement around a node that begins its line, or the one before it there."""
        for each in [node, *self.names.above(node)]:
            if isinstance(each, ast.stmt):
                line = [other for other in self.block(each) if other.lineno == each.lineno]
                if self.source.begins_line(line[0]):
                    return line[0]
        raise AssertionError("the outermost statement begins a line")

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return the statements among which this one stands."""
        parent = self.names.parent[statement]
        lists = [value for _, value in ast.iter_fields(parent) if isinstance(value, list)]
        return next(each for each in lists if statement in each)


def _read_by(loop: ast.For | Comprehension) -> list[ast.expr]:
    """Return what a loop reads, from the outside inwards."""
    if isinstance(loop, ast.For):
        return [loop.iter]
    return [each.iter for each in loop.generators]


def _looks_like_training(loader: Loader) -> tuple[bool, bool, bool]:
    shuffle, drop = loader.argument("shuffle", 2), loader.argument("drop_last", 8)
    shuffles = isinstance(shuffle, ast.Constant) and shuffle.value is True
    sampled = loader.argument("sampler", 3) is not None
    drops = isinstance(drop, ast.Constant) and drop.value is True
    return shuffles or sampled, any("train" in name.lower() for _, name in loader.places), drops
