"""Follow the training loss: which values of a script would differ between its ranks?

Each rank computes the loss of its own batches. What is assigned from it, added up from it
or decided by it differs as well, until the ranks agree on it with a collective.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from scalewise.port.name_tracking import Function, Place, dotted
from scalewise.port.serial_script import Comprehension, Script

AGREE = ("all_reduce", "broadcast", "all_gather", "all_gather_object", "broadcast_object_list")
NO_TRAINING = {"no_grad", "inference_mode"}
BLOCKS = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For,
          ast.AsyncFor, ast.While, ast.Try, ast.ExceptHandler, ast.match_case)  # fmt: skip
"""What may run its statements or not; a ``with`` always does."""
WRITES = (ast.stmt, ast.NamedExpr, ast.withitem)


@dataclass(frozen=True, eq=False)
class Written:
    """A value comes to a place: where that is written, from what, and if the old one is gone."""

    place: Place
    at: ast.AST
    values: list[ast.AST]
    where: tuple[int, int]
    whole: bool = False


@dataclass(frozen=True)
class Differing:
    """The values of a script that would differ between ranks."""

    script: Script
    _written: dict[Place, list[Written]] = field(default_factory=dict, init=False)
    _found: set[Written] = field(default_factory=set, init=False)
    _returns: set[ast.AST] = field(default_factory=set, init=False)
    _agreed: set[Place | None] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        for each in sorted(self._writings(), key=lambda each: each.where):
            self._written.setdefault(each.place, []).append(each)
        for call in self.script.calls(*AGREE):
            self._agreed.update(map(self.script.names.place, ast.walk(call)))
        every = [each for several in self._written.values() for each in several]
        self._found.update(self._first(every))
        returns = [each for each in self.script.names.nodes if isinstance(each, ast.Return)]
        before = (-1, -1)
        while before != (before := (len(self._found), len(self._returns))):
            self._found.update(
                each
                for each in every
                if each not in self._found
                and any(map(self.differs, [*each.values, *self.conditions(each.at)]))
            )
            self._returns.update(
                self.script.names.scope(each)
                for each in returns
                if each.value and self.differs(each.value)
            )

    def differs(self, value: ast.AST) -> bool:
        """Say whether an expression would have another value on each rank."""
        for node in ast.walk(value):
            if isinstance(node, ast.Call) and self._comes_back(node):
                return True
            if isinstance(node, ast.Name | ast.Attribute):
                place = self.script.names.place(node)
                reaching = self._reaching(place, node) if place else ()
                if place not in self._agreed and any(each in self._found for each in reaching):
                    return True
        return False

    def conditions(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield the tests of every ``if`` and ``while`` around a node, within its function."""
        inside = node
        for each in self.script.names.above(node):
            if isinstance(each, Function):
                return
            if isinstance(each, ast.If | ast.While) and inside is not each.test:
                yield each.test
            inside = each

    def _comes_back(self, call: ast.Call) -> bool:
        """Say whether a function of this file returns what differs; not for another loader."""
        if self.script.names.local(call) not in self._returns:
            return False
        trained = self.script.train_loader
        others = {
            place
            for loader in self.script.loaders
            if trained and not loader.places & trained.places
            for place in loader.places
        }
        given = [*call.args, *(each.value for each in call.keywords)]
        return not any(self.script.names.place(each) in others for each in given)

    def _first(self, every: list[Written]) -> Iterator[Written]:
        """Yield where the loss of a batch, and what the model made of the batch, are written."""
        models = {place for model in self.script.models for place in model.places}
        for each in every:
            calls = [
                node for value in each.values for node in ast.walk(value)
                if isinstance(node, ast.Call)
            ]  # fmt: skip
            made = any(self.script.names.place(call.func) in models for call in calls)
            if made and self._in_training(each.at):
                yield each
        for backward in self.script.backwards:
            for node in ast.walk(backward):
                place = self.script.names.place(node)
                for each in self._reaching(place, node) if place else ():
                    if any(isinstance(part, ast.Call) for value in each.values
                           for part in ast.walk(value)):  # fmt: skip
                        yield each

    def _in_training(self, node: ast.AST) -> bool:
        """Say whether a node stands where batches are trained on, not where they are judged."""
        names = self.script.names
        for each in names.above(node):
            if isinstance(each, ast.With) and any(
                isinstance(item.context_expr, ast.Call)
                and names.last(item.context_expr) in NO_TRAINING
                for item in each.items
            ):
                return False
            if isinstance(each, ast.For | ast.While):
                return each in self.script.loops
            if isinstance(each, Function):
                return any(names.scope(call) is each for call in self.script.backwards)
        return False

    def _reaching(self, place: Place, read: ast.AST) -> Iterator[Written]:
        """Yield the writings whose value a read may see: not those that are overwritten."""
        names = self.script.names
        scope, around = names.scope(read), set(names.above(read))
        last: Written | None = None
        for each in reversed(self._written.get(place, [])):
            if names.scope(each.at) is not scope or place[0] is not scope:
                yield each
            elif last is None and _comes_before(each, read, around):
                yield each
                last = each if each.whole and self._surely_before(each.at, around) else None
        kept = set(names.above(last.at)) | {last.at} if last else set()
        carried = {each for each in around if isinstance(each, ast.For | ast.While)} - kept
        for each in self._written.get(place, []):
            if each.where >= _where(read) and carried & set(names.above(each.at)):
                yield each

    def _surely_before(self, writing: ast.AST, around: set[ast.AST]) -> bool:
        """Say whether a writing runs whenever what follows it in its block does."""
        if isinstance(writing, ast.For | Comprehension):
            return writing in around
        statements = (each for each in self.script.names.above(writing) if isinstance(each, BLOCKS))
        return next(statements) in around

    def _writings(self) -> Iterator[Written]:
        """Yield everything that brings a value to a place."""
        names = self.script.names
        for target, value in names.assignments():
            at = next(each for each in names.above(target) if isinstance(each, WRITES))
            yield from self._targets(target, at, [value])
        for node in names.nodes:
            if isinstance(node, ast.AugAssign):
                yield from self._targets(node.target, node, [node.value], whole=False)
            elif isinstance(node, ast.For):
                yield from self._targets(node.target, node, [node.iter])
            elif isinstance(node, ast.comprehension):
                yield from self._targets(node.target, names.parent[node], [node.iter])
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                yield from self._told(node.value, node)
            elif isinstance(node, ast.Call) and (function := names.local(node)):
                yield from self._parameters(node, function)

    def _targets(
        self, target: ast.AST, at: ast.AST, values: list[ast.AST], *, whole: bool = True
    ) -> Iterator[Written]:
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                yield from self._targets(each, at, values, whole=whole)
        elif isinstance(target, ast.Subscript | ast.Starred):
            yield from self._targets(target.value, at, values, whole=False)
        elif place := self.script.names.place(target):
            yield Written(place, at, values, _where(target), whole)

    def _told(self, call: ast.Call, at: ast.stmt) -> Iterator[Written]:
        """Yield the object that is told a value: ``losses.append(loss)``, ``stopper(loss)``."""
        told = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        place = self.script.names.place(told)
        names = self.script.names
        if place and place[1] != "self" and place not in names.imported and place not in names.bars:
            yield Written(place, at, [*call.args, *call.keywords], _where(call))

    def _parameters(self, call: ast.Call, function: Function) -> Iterator[Written]:
        """Yield the parameters of a function of this file; objects are followed as a whole."""
        method = self.script.names.owner(function)
        if method and not dotted(call.func).startswith("self."):
            return
        named = [each.arg for each in [*function.args.posonlyargs, *function.args.args]]
        given = [*zip(named[1:] if method else named, call.args)]
        given += [(each.arg, each.value) for each in call.keywords if each.arg]
        for name, value in given:
            yield Written((function, name), function, [value], _where(function))


def _where(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]  # Statements have both.


def _comes_before(writing: Written, read: ast.AST, around: set[ast.AST]) -> bool:
    """Say whether a writing stands before a read; a loop writes before all that is in it."""
    if writing.at in around:
        return isinstance(writing.at, ast.For | Comprehension)
    return writing.where < _where(read)
