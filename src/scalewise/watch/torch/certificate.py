"""Certificate mode of a user's program: known seed and order of samples, and sketches of steps.

Samplers that shuffle use one order for each pass over the data, the same on any number of ranks:
what all ranks train on in a step is then what one device trains on in that step. An error here ends
only the sketches; the program continues.
"""

import contextlib
import copy
import functools
import gc
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import RandomSampler
from torch.utils.data.distributed import DistributedSampler

from scalewise.probe.torch import certificate_mode as mode
from scalewise.probe.torch.output_sketch import OutputSketches
from scalewise.probe.torch.sketch import Sketcher, sample_fingerprints
from scalewise.probe.torch.sync_timer import Patch
from scalewise.probe.watcher import Watcher
from scalewise.watch.torch import private_api
from scalewise.watch.torch.discovery import MAX_DEPTH, samples_and_tensor
from scalewise.watch.torch.loader_passes import loader_key

MAX_TENSORS = 4
"""Tensors of a batch on which the fingerprints of its samples depend."""
NO_STEP = "no step of a PyTorch optimizer was observed"
UNNAMED = "parameters of the optimizer belong to no module, as with DeepSpeed or FSDP1"
FLAT = "FullyShardedDataParallel has flat parameters without layers; fully_shard has layers"
CLOSURE = "the optimizer computes gradients inside its step, with a closure"


class Certificate:
    """Prepares the program's random numbers, samplers and dropout; writes sketches and facts."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        spec = watcher.spec
        self._seed, self._reverses = spec.seed, spec.certify_order == "reversed"
        self._last_step = mode.last_sketched(spec.stop_after)
        self.facts: dict[str, Any] = {"seed": spec.seed, "order": "usual"}
        """The line ``certificate``: see ``CertificateFacts`` in record/schema.py."""
        self._enabled = True
        self._optimizers: dict[int, mode.OptimizerSketches] = {}
        self._depth = 0
        """How many optimizer steps are nested at the moment."""
        self._names: set[str] = set()
        """Names of layers that were given to parameters."""
        self._named_ids: set[int] = set()
        self._models: list[nn.Module] = []
        self._unowned: Unowned | None = None
        self._outputs: OutputSketches | None = OutputSketches(
            lambda: private_api.in_backward() or _is_capturing()
        )
        """Of the first step; None after it."""
        self._samples = StepSamples()
        self._passes: dict[int, int] = {}
        """By length of the data: how many passes a ``RandomSampler`` has begun."""
        self._epochs: dict[int, list[int]] = {}
        """By length of the data: values of ``DistributedSampler.epoch``, in order of first use."""

    def install(self) -> list[Patch]:
        """Seed the random numbers, and hook optimizers; return patches of PyTorch's functions."""
        mode.seed_everything(self._seed)
        register_optimizer_step_pre_hook(self._safe(self._before_step))
        register_optimizer_step_post_hook(self._safe(self._after_step))
        self._watcher.end_facts.append(self._end_facts)
        patches = mode.dropout_patches() + mode.loss_patches(self._safe(self._samples.on_loss))
        orders: dict[Any, Any] = {
            RandomSampler: self._pass_order,
            DistributedSampler: self._epoch_order,
        }
        for cls, order in orders.items():
            original = cls.__iter__
            patches.append((cls, "__iter__", original, order(original)))
        if self._reverses:
            patches += private_api.wrap_next_index(self._reverse)
        return patches

    # Samplers.

    def _pass_order(self, original: Callable[[Any], Iterator[int]]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def known_order(sampler: Any) -> Iterator[int]:
            size = len(sampler.data_source)
            number = self._passes.get(size, 0)
            self._passes[size] = number + 1
            if sampler.generator is None:
                # The original draws this number: the program's random numbers stay as they are.
                own_seed = int(torch.empty((), dtype=torch.int64).random_().item())
            else:
                own_seed = sampler.generator.initial_seed()
            self._note_sampler(sampler, own_seed)
            ordered = copy.copy(sampler)
            ordered.generator = torch.Generator()
            ordered.generator.manual_seed(self._seed + number)
            return original(ordered)

        return known_order

    def _epoch_order(self, original: Callable[[Any], Iterator[int]]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def known_order(sampler: Any) -> Iterator[int]:
            self._note_sampler(sampler, sampler.seed)
            epochs = self._epochs.setdefault(len(sampler.dataset), [])
            if sampler.epoch not in epochs:  # Programs begin with epoch 0, or 1.
                epochs.append(sampler.epoch)
            ordered = copy.copy(sampler)
            ordered.seed, ordered.epoch = self._seed, epochs.index(sampler.epoch)
            return original(ordered)

        return known_order

    def _note_sampler(self, sampler: Any, own_seed: int) -> None:
        self.facts.setdefault("sampler", type(sampler).__name__)
        self.facts.setdefault("sampler_seed", own_seed)

    def _reverse(self, index: Any) -> Any:
        """Return the indices of a batch in reversed order, if these are indices."""
        if isinstance(index, (list, tuple)) and len(index) > 1 and index[0] is not None:
            self.facts["order"] = "reversed"
            return index[::-1]
        return index

    # Samples: called by the hooks of fetch, forward and backward.

    def around_fetch(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a loader iterator's ``__next__`` that remembers the newest batch."""

        @functools.wraps(original)
        def watched(iterator: Any) -> Any:
            batch = original(iterator)
            if self._enabled and self._samples.wanted:
                self._samples.newest_batch = batch, iterator
            return batch

        return watched

    def around_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``backward`` that counts the newest batch as trained on."""
        on_backward = self._safe(self._samples.on_backward)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling():
                on_backward()
            result = original(*args, **kwargs)
            self._samples.end_backward()
            return result

        return watched

    def on_epoch(self, loader: Any) -> None:
        """Note the length of a loader that begins an epoch."""
        try:
            self._samples.lengths[loader_key(loader)] = len(loader)
        except TypeError:  # It has no length.
            self._samples.lengths.pop(loader_key(loader), None)

    def on_forward(self, model: nn.Module, inputs: Any) -> None:
        """Note the input and the data type of a model's training call."""
        if not self._enabled or not torch.is_grad_enabled():
            return
        self._safe(self._on_forward)(model, inputs)

    def _on_forward(self, model: nn.Module, inputs: Any) -> None:
        if all(model is not known for known in self._models):
            self._models.append(model)
            if self._outputs is not None:
                self._outputs.add(model)
            off = self.facts.get("dropout_off", 0) + mode.switch_dropout_off(model)
            self.facts["dropout_off"] = off
        if "precision" not in self.facts:
            parameter = next(iter(model.parameters()), None)
            if parameter is not None:
                kind, dtype = parameter.device.type, parameter.dtype
                if torch.is_autocast_enabled(kind):
                    dtype = torch.get_autocast_dtype(kind)
                self.facts["precision"] = str(dtype).removeprefix("torch.")
        self._samples.on_forward(inputs)

    # Optimizers.

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth += 1
        if self._depth > 1 or _is_capturing():  # A wrapper around another optimizer.
            return
        sketches = self._optimizers.get(id(optimizer))
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        if sketches is None or _ids(parameters) != _ids(sketches.parameters):
            sketches = self._add_optimizer(optimizer, parameters)
        has_closure = any(callable(value) for value in (*args[1:], *kwargs.values()))
        if has_closure:
            self.facts.setdefault("unsupported", CLOSURE)
        # A fused optimizer divides by the GradScaler's scale itself.
        scale = getattr(optimizer, "grad_scale", None)
        if sketches.next_is_sketched:
            self._samples.unreduced = sum(map(private_api.unreduced_gradients, self._models))
        sketches.begin_step(with_gradients=not has_closure, divisor=scale)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth = max(0, self._depth - 1)
        sketches = self._optimizers.get(id(optimizer))
        if self._depth or sketches is None:
            return
        if sketches.end_step():
            if self._samples.count:
                self._watcher.note(sketch_samples=self._samples.line(sketches.step))
            if self._outputs is not None:
                layers, self._outputs = self._outputs.end(), None
                if layers:
                    self._watcher.note(sketch={"step": 0, "kind": "output", "layers": layers})
            if sketches.step == 0:
                self._note_models()
                self._watcher.note(certificate=self._complete_facts())
            elif sketches.step == 1 and self._unowned is not None:
                self._unowned.compare()
        self._samples.clear()
        self._samples.wanted = any(each.next_is_sketched for each in self._optimizers.values())

    def _add_optimizer(self, optimizer: Any, parameters: list[Tensor]) -> mode.OptimizerSketches:
        """Give names to an optimizer's parameters, and prepare their sketches."""
        names = mode.parameter_names([*find_roots(), *self._models])
        if self._unowned is None:
            self._unowned = Unowned(self._models, names, _ids(parameters))
        named: dict[str, Tensor] = {}
        for index, parameter in enumerate(parameters):
            if id(parameter) in self._named_ids:  # Another optimizer has it too.
                continue
            name = names.get(id(parameter), f"parameter {index}")
            if id(parameter) not in names:
                self.facts.setdefault("unsupported", UNNAMED)
            if "_flat_param" in name:
                self.facts["unsupported"] = FLAT
            number, unique = 2, name
            while unique in self._names:
                unique, number = f"{name}#{number}", number + 1
            self._names.add(unique)
            self._named_ids.add(id(parameter))
            named[unique] = parameter
        earlier = self._optimizers.get(id(optimizer))
        sketches = mode.OptimizerSketches(
            named, self._watcher.note, lambda: mode.buffers_of(self._models), self._last_step
        )
        if earlier is not None:
            sketches.step = earlier.step
        self._optimizers[id(optimizer)] = sketches
        return sketches

    # Facts.

    def _note_models(self) -> None:
        self.facts["batch_norm"] = mode.own_batch_norms(self._models)

    def _complete_facts(self) -> dict[str, Any]:
        self.facts["layers"] = len(self._names)
        # At the end the program may have destroyed its process group: the first value stays.
        self.facts.setdefault("world", self._watcher.rank_and_world()[1])
        self.facts["epoch_steps"] = self._samples.epoch_steps
        if not self._optimizers:
            self.facts.setdefault("unsupported", NO_STEP)
        return {"unsupported": None, **self.facts}

    def _end_facts(self) -> dict[str, Any]:
        if self._unowned is not None:  # Only now: another optimizer may have begun later.
            self.facts["not_updated"] = self._unowned.unchanged(self._named_ids)
        return {"certificate": self._complete_facts()} if self._watcher.steps else {}

    def _safe(self, function: Callable[..., Any]) -> Callable[..., None]:
        """Return ``function`` as a hook that ends the sketches if it fails."""

        @functools.wraps(function)
        def hook(*args: Any) -> None:
            if self._enabled and self._watcher.enabled:
                try:
                    function(*args)
                except Exception as problem:
                    self._enabled = False
                    self.facts["unsupported"] = f"the sketches failed: {problem!r}"
                    print(f"scalewise: {self.facts['unsupported']}", file=sys.stderr)

        return hook


class Unowned:
    """Parameters with a gradient that the first optimizer does not have, and their weights."""

    def __init__(
        self, models: Iterable[nn.Module], names: Mapping[int, str], owned: Container[int]
    ) -> None:
        self._parameters = {
            names[id(parameter)]: parameter
            for model in models
            for parameter in model.parameters()
            if parameter.grad is not None and id(parameter) not in owned and id(parameter) in names
        }
        self._unchanged: list[str] = []
        self._before = self._elements()

    def _elements(self) -> dict[str, Tensor]:
        """Return a copy of some elements of each parameter."""
        return {
            name: Sketcher({name: parameter}).elements([parameter])
            for name, parameter in self._parameters.items()
        }

    def compare(self) -> None:
        """Note which parameters have the weights that they had at the start."""
        after = self._elements()
        self._unchanged = [
            name for name, before in self._before.items() if torch.equal(before, after[name])
        ]

    def unchanged(self, owned: Container[int]) -> list[str]:
        """Return the names of those that kept their weights and belong to no optimizer."""
        return [name for name in self._unchanged if id(self._parameters[name]) not in owned]


class StepSamples:
    """The samples of the current step: of the batches that were followed by a backward."""

    def __init__(self) -> None:
        self.wanted = True
        """Whether the next step is sketched."""
        self.newest_batch: tuple[Any, Any] | None = None
        """The newest batch of any loader since the last backward, and its iterator."""
        self.lengths: dict[int, int] = {}
        """By loader's id: the batches of an epoch."""
        self.epoch_steps: int | None = None
        self.unreduced = 0
        """Parameters with a gradient that FSDP did not reduce."""
        self.count = 0
        self._micro_steps = 0
        self._fingerprints: list[str] = []
        self._has_loader = False
        self._inputs: Any = None
        """The input of the first model that was called since the last backward."""
        self._rows: int | None = 0
        """Rows of the models' inputs in this step; None if those of some call are unclear."""
        self._loss_targets = 0
        """Targets of losses since the last backward."""
        self._targets: list[int] = []

    def on_forward(self, inputs: Any) -> None:
        if not self.wanted:
            return
        rows = samples_and_tensor(inputs)[0]
        self._rows = None if rows is None or self._rows is None else self._rows + rows
        if not self._has_loader and self._inputs is None:
            self._inputs = inputs

    def on_loss(self, target: Tensor, ignored: int) -> None:
        """Count the targets of a loss that are not ignored; skip those whose number is unclear."""
        is_plain = type(target) is Tensor and not target.is_floating_point()
        if self.wanted and is_plain and torch.is_grad_enabled() and not _is_capturing():
            with contextlib.suppress(RuntimeError):  # Inside ``vmap``.
                self._loss_targets += int((target != ignored).sum().item())

    def end_backward(self) -> None:
        """Forget losses that were computed again inside ``backward``, by checkpointing."""
        self._loss_targets = 0

    def on_backward(self) -> None:
        """Count the newest batch, or without a loader the model's input, as trained on."""
        known = self._micro_steps
        if self.newest_batch is not None:
            batch, iterator = self.newest_batch
            self._has_loader = True
            if self.epoch_steps is None:
                self.epoch_steps = self.lengths.get(getattr(iterator, private_api.LOADER, 0))
            self._add(batch, private_api.drawn_samples(iterator))
        elif self._inputs is not None and not self._has_loader:
            self._add(self._inputs, None)
        self.newest_batch = self._inputs = None
        if self._loss_targets and (self._micro_steps > known or not self._targets):
            self._targets.append(self._loss_targets)
        elif self._loss_targets:  # Another loss of the same batch.
            self._targets[-1] += self._loss_targets

    def _add(self, batch: Any, drawn: int | None) -> None:
        self._micro_steps += 1
        samples, first = samples_and_tensor(batch, drawn)
        self.count += samples or 0
        if samples and first is not None and first.ndim and len(first) == samples:
            rows = [each for each in _tensors(batch) if each.ndim and len(each) == samples]
            self._fingerprints += sample_fingerprints(rows[:MAX_TENSORS])

    def line(self, step: int) -> dict[str, Any]:
        """Return the line ``sketch_samples`` of a step."""
        # If the samples of a batch cannot be told apart, none of the step are known.
        known = len(self._fingerprints) == self.count
        fingerprints = sorted(self._fingerprints) if known else []
        return {
            "step": step, "count": self.count, "micro_steps": self._micro_steps,
            "fingerprints": fingerprints, "replica": None, "targets": self._targets,
            "rows": self._rows or None, "unreduced": self.unreduced,
        }  # fmt: skip

    def clear(self) -> None:
        self.count, self._micro_steps, self._fingerprints, self._targets = 0, 0, [], []
        self._rows = 0
        self.newest_batch = self._inputs = None


def _tensors(values: Any, depth: int = MAX_DEPTH) -> Iterator[Tensor]:
    """Yield the tensors of a batch, in order."""
    if isinstance(values, Tensor):
        yield values
    elif depth:
        if not isinstance(values, (list, tuple, Mapping)):
            values = getattr(values, "data", None)  # Transformers' BatchEncoding has a mapping.
        if isinstance(values, Mapping):
            values = values.values()
        for value in values if values is not None and not isinstance(values, Tensor) else ():
            yield from _tensors(value, depth - 1)


def find_roots() -> list[nn.Module]:
    """Return the modules of the program that are not parts of other modules.

    A layer's name begins at such a module, also if the program calls only an inner module.
    """
    is_module: dict[type, bool] = {}  # By class: a program has many more objects than classes.
    modules = []
    for each in gc.get_objects():
        cls = type(each)  # Not ``isinstance``, which would load lazy objects.
        if cls not in is_module:
            is_module[cls] = issubclass(cls, nn.Module)
        if is_module[cls]:
            modules.append(each)
    children = {
        id(child)
        for module in modules
        for child in (module.__dict__.get("_modules") or {}).values()
        if child is not None
    }
    return [
        module
        for module in modules
        if id(module) not in children and module.__dict__.get("_modules") is not None
    ]


def _ids(parameters: Any) -> set[int]:
    return {id(parameter) for parameter in parameters}


def _is_capturing() -> bool:
    """Return whether a CUDA graph is being captured; reading a tensor would break the capture."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
