"""Hook PyTorch where a step's activities (fetch, forward, backward, …) begin and end.

Where PyTorch has no public hook, its function is wrapped. The hooks record nothing while a graph is
being compiled, nor in a forked child.
"""

import os
import sys
import threading
import time
from collections import Counter
from inspect import Parameter, signature
from pathlib import Path
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import is_grad_enabled
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from scalewise.probe import rank_identity
from scalewise.probe.torch import device as devices
from scalewise.probe.torch import gloo
from scalewise.probe.torch.sync_timer import wrap_wait
from scalewise.probe.watcher import Watcher, get_watcher
from scalewise.watch.torch import private_api
from scalewise.watch.torch.ddp_models import DdpModels
from scalewise.watch.torch.discovery import (
    Discovery,
    has_equal_rows,
    input_rows_and_tensor,
    on_delete,
    samples_and_tensor,
    samples_rows_and_tensor,
)
from scalewise.watch.torch.event_buffer import EventBuffer
from scalewise.watch.torch.facts import Facts
from scalewise.watch.torch.forward_uses import ForwardUses
from scalewise.watch.torch.hot_hooks import INSPECTED_STEPS, make_hot_hooks
from scalewise.watch.torch.ledgers import Ledgers
from scalewise.watch.torch.loader_passes import loader_key
from scalewise.watch.torch.loaders import Loaders
from scalewise.watch.torch.manual_updates import ManualUpdates
from scalewise.watch.torch.patches import AfterCall, Args, Kwargs, Patches
from scalewise.watch.torch.profiler import Profile
from scalewise.watch.torch.stretches import Stretches

if TYPE_CHECKING:  # Imported only for a run with ``certify``.
    from scalewise.watch.torch.certificate import Certificate

DISCOVERY_STEPS = 2
"""Steps in which every module is hooked, to find the models that are trained."""
MAX_UNSTEPPED_DISCOVERY = 10
"""As many steps if the program has optimizers that have not stepped yet, with models of theirs."""
MAX_FUTILE_DISCOVERIES = 3
"""After so many searches for a model that found none, trained models are taken to be invisible."""
MAX_FIRST_BACKWARDS = 8
"""In the first steps, so many backwards without an optimizer's step are taken to be usual."""

_hooks: "Hooks | None" = None


def on_import(name: str, module: ModuleType) -> None:
    """Install the hooks for a module that the program has just imported."""
    global _hooks
    if name == "torch" and _hooks is None:
        folder = Path(os.environ["SCALEWISE_RUN"])
        _hooks = Hooks(get_watcher(folder, rank_and_world))
        _hooks.install()
    elif _hooks is None:
        return
    elif name == "torch._dynamo.eval_frame":
        _hooks.wrap_compiled(module)
    elif name == "torch.distributed.checkpoint":
        for function in ("save", "async_save"):
            _hooks.wrap_saving(module, function)
    elif name == "safetensors.torch":
        _hooks.wrap_saving(module, "save_file")


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and world size, from PyTorch if it has a process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    rank, world = rank_identity.rank_and_world()
    # Without a process group a rank trains alone, even if WORLD_SIZE is larger than 1.
    return rank, min(world, 1)


class Hooks:
    """Adds an event to the event buffer where an activity begins or ends.

    A method ``_before_…`` is called before a wrapped function. If it returns a function, the
    returned function is called afterwards, with the result of the wrapped function.
    """

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.buffer = EventBuffer(watcher)
        self.observer = self.buffer.observer
        self.add_event = self.buffer.add
        self.facts = Facts(watcher)
        self.loaders = Loaders(watcher, self.observer)
        self.ledgers = Ledgers(watcher)
        self.ledgers.skipped_samples = lambda: self.observer.counts.skipped
        self.profile = Profile(watcher, self.buffer)
        self.patches = Patches(watcher, self.disable)
        self.may_compile = False
        """Whether the program uses a compiler; then events during its tracing must be ignored."""
        self.settled_model_id = 0
        """The id of the model that was last called to train; 0 while its facts are incomplete."""
        self.replicated = self.input_has_batch = False
        """Whether that model is wrapped in DDP, and its input shows the number of samples."""
        self._compiled_class: Any = ()
        """The class of compiled models, once it is imported; nothing is an instance of ()."""
        self.manual_updates = ManualUpdates(
            lambda updates: self.hot.step_ends(updates, (), {}),
            self._give_up_manual_updates,
            lambda count: self.add_event(("by_hand", id(self.manual_updates), count)),
        )
        self.searches_updates = True
        """Whether steps without an optimizer are being detected."""
        self._called_model = False
        """Whether a model was called to train since the last backward; read only while steps
        without an optimizer are being detected.
        """
        self.max_backwards = MAX_FIRST_BACKWARDS
        """If there are optimizers, more backwards without a step of theirs begin that detection;
        more than in any step before are needed, too."""
        self.stepped_optimizers: set[int] = set()
        """Ids of the optimizers that have stepped."""
        self.training_threads = {threading.main_thread().ident or 0}
        """The main thread, and those that make optimizers, call their steps, or call models with
        gradients to train. What other threads do is no part of a step."""
        self._stretches = Stretches()
        self._rows_of_one: dict[int, Counter[int]] = {}
        """By id of a loader that draws one sample for a batch: how often a batch had so many rows;
        1 where its tensors disagree, 0 where it shows none."""
        self._has_any_size = False
        """Whether a loader does not say how many samples it draws for a batch."""
        self._filtering_loaders: set[int] = set()
        """Ids of loaders whose collate function leaves some of the drawn samples out."""
        # Hooks that are called in every step. After a change of our state, call ``hot.refresh``.
        self.hot = make_hot_hooks(watcher, self.buffer, self)
        safe = self.patches.safe
        self.discovery = Discovery(
            self.forward,
            self._end_forward,
            safe,
            self.hot.around_forward,
            self.hot.around_inner,
            self._is_elsewhere,
            self.facts.on_time_first_layer,
        )
        self.ddp = DdpModels(self.hot.last_gradient)
        self._model_ids: set[int] = set()
        """Ids of the models that were called to train."""
        self._wrapped_ids: set[int] = set()
        """Ids of the modules that such models wrap."""
        self._clock_chosen = False
        self._plain_steps = True
        """Whether no optimizer step had a closure, a GradScaler or another step inside it."""
        self.optimizer_seen = False
        """Whether an optimizer's step hook was called."""
        self._first_node = 0
        """The number of the next autograd node when a model was last called."""
        self._begun = False
        """Whether any activity of a step has begun."""
        self._open_waits = 0
        """Waits for a collective that have begun and not ended."""
        self._discovery_end = DISCOVERY_STEPS
        """The step after which only the trained models are hooked."""
        self._known_models = self._futile_discoveries = 0
        """Models found before the search that is going on; and searches that found none."""
        self._optimizer_ids: set[int] = set()
        self._optimizer_hooks: list[Any] = []  # Called before, and after, an optimizer's step.
        self._has_process_group = False
        self.certificate: Certificate | None = None
        """Only in a run with ``certify``."""

    def install(self) -> None:
        """Install everything that can be hooked when PyTorch has just been imported."""
        hot, wrap, safe = self.hot, self.patches.wrap, self.patches.safe
        around_backward, around_fetch = hot.around_backward, hot.around_fetch
        if self.watcher.spec.certify:
            around_backward, around_fetch = self._begin_certificate()
        for owner, name, wrap_hot in (
            (torch.autograd, "backward", around_backward),
            (DistributedDataParallel, "forward", hot.around_forward),
            (DataParallel, "forward", hot.around_forward),
        ):
            original = getattr(owner, name)
            self.patches.add((owner, name, original, wrap_hot(original)))
        wrap(DataLoader, "__iter__", self._before_iter)
        self.patches.add(*private_api.wrap_fetch(around_fetch))
        self.patches.add(*wrap_wait(safe(self._before_wait), safe(self._after_wait)))
        for owner, name in private_api.buffer_exchange_methods():
            wrap(owner, name, lambda args, kwargs: self._before_wait(()))
        zero_grad = torch.optim.Optimizer.zero_grad
        self.patches.add(
            (torch.optim.Optimizer, "zero_grad", zero_grad, hot.around_zero_grad(zero_grad))
        )
        wrap(torch.autograd, "grad", self._before_grad)
        wrap(torch.optim.Optimizer, "__init__", self._before_optimizer_init)
        wrap(torch.amp.GradScaler, "step", self._before_scaler_step)
        self.wrap_saving(torch, "save")
        wrap(dist, "init_process_group", self._before_rendezvous)
        if dist.is_available():
            wrap(dist, "destroy_process_group", self._before_destroy)
        wrap(torch.nn.Module, "compile", self._before_module_compile)
        wrap(torch, "compile", self._before_compile)
        if hasattr(torch, "export"):
            wrap(torch.export, "export", lambda args, kwargs: self._ignore_tracing())
        self.facts.install()
        self.discovery.install()
        self.watcher.end_facts.append(self._finish)
        self.watcher.flush_events = self.flush_events
        self.watcher.on_switch = self.buffer.on_change = hot.refresh
        hot.refresh()
        self._optimizer_hooks = [
            register_optimizer_step_pre_hook(hot.step_begins),
            # Before ``step_ends``, which may exit the program.
            register_optimizer_step_post_hook(self.ledgers.count_step),
            register_optimizer_step_post_hook(hot.step_ends),
        ]
        self.patches.apply()

    def _begin_certificate(self) -> tuple[Any, Any]:
        """Switch to certificate mode; return the wrappers of ``backward`` and of a fetch."""
        from scalewise.watch.torch.certificate import Certificate

        certificate, hot = Certificate(self.watcher), self.hot
        self.certificate = certificate
        # Its hooks are installed first: ours may end the program after the last step.
        self.patches.add(*certificate.install())
        return (
            lambda original: hot.around_backward(certificate.around_backward(original)),
            lambda original: hot.around_fetch(certificate.around_fetch(original)),
        )

    def disable(self, problem: Exception) -> None:
        """Stop watching and restore PyTorch; the training continues."""
        self.watcher.disable(problem)
        for handle in self._optimizer_hooks:
            handle.remove()
        self.patches.remove()
        self.discovery.remove()
        self.ddp.remove()

    def _is_elsewhere(self, model: Any) -> bool:
        """Return whether a model's call is no part of a step: in a loader, in another thread, or
        while its graph is traced.
        """
        if self.hot.is_fetching() or private_api.is_tracing():
            return True
        if is_grad_enabled() and model.training:  # A thread that evaluates may forget ``no_grad``.
            self.training_threads.add(get_ident())
        return get_ident() not in self.training_threads

    def forward(self, args: Args, kwargs: Kwargs) -> bool:
        """Record the call of a model, and gather facts from it; return whether it is recorded."""
        if self._is_elsewhere(args[0]):
            return False
        self.before_activity()
        called = model = args[0]
        if isinstance(called, self._compiled_class):
            self._before_compile(args, kwargs)
            model = getattr(called, "_orig_mod", called)
        training = is_grad_enabled()
        unsettled = training and id(called) != self.settled_model_id
        self._called_model |= training
        self._first_node = private_api.next_sequence_number()
        # In eval mode with gradients: the observer decides later whether this is training.
        undecided_eval = training and not model.training and not self.observer.trains_in_eval
        if unsettled:
            self._begin_model(model)
            if self.certificate is not None:
                self.certificate.on_forward(model, (args[1:], kwargs))
        rows, tensor = input_rows_and_tensor(model, args[1:], kwargs, self._stretches.recent_rows)
        continues = False
        if training and self._looks_into_batches():
            rows, continues = self._stretches.call(rows, tensor)
        # Whether a list has entries or features of samples, only the loader's batch shows.
        is_list = len(args) > 1 and isinstance(args[1], list)
        shows_rows = rows is not None and tensor is not None and not is_list
        self.input_has_batch = shows_rows and not (
            self._has_any_size or self._stretches.compares_always
        )
        syncing = training and self.replicated and model.require_backward_grad_sync
        if self.replicated:
            self.hot.set_syncing(syncing)
        if undecided_eval:
            self.add_event(("forward_eval", rows, syncing, id(called)))
        else:
            further: tuple[bool, ...] = (True,) if continues else ()
            if not training and not self._is_trained(model):
                further = (False, False)
            self.add_event(("forward", rows, training, syncing, id(called), *further))
        if unsettled:
            if self.facts.call_may_show_facts:
                self.facts.on_call(model, tensor, (args[1:], kwargs))
            complete = not self.facts.call_may_show_facts and not self.searches_updates
            # A certificate counts the rows of every call.
            self.settled_model_id = id(called) if complete and self.certificate is None else 0
        return True

    def _is_trained(self, model: Any) -> bool:
        """Return whether this model, or a wrapper around it, was called to train; True as long as
        none was.
        """
        known = self._model_ids
        return not known or id(model) in known or id(model) in self._wrapped_ids

    def _looks_into_batches(self) -> bool:
        return self.watcher.steps <= INSPECTED_STEPS or self._stretches.compares_always

    def _end_forward(self, *, has_failed: bool) -> None:
        failed = has_failed and is_grad_enabled()
        self.add_event(("failed",) if failed else ("forwarded",))
        if is_grad_enabled() and not failed:
            self.hot.note_forward(self._first_node)

    def _begin_model(self, model: Any) -> None:
        """Prepare to watch a model that is called to train; hook a DDP model's last gradient."""
        if not self._clock_chosen:  # An accelerator's steps are timed by its own clock.
            self._clock_chosen = self._begun = True
            parameter = next(iter(model.parameters()), None)
            device = parameter.device if parameter is not None else torch.device("cpu")
            if device.type in ("cuda", "xpu"):
                self.watcher.clock = devices.EventClock(device)
                self.buffer.use_device_clock(self.watcher.clock.mark)
            self.facts.device = device
        self.replicated = isinstance(model, DistributedDataParallel)
        if id(model) in self._model_ids:
            return
        self._model_ids.add(id(model))
        inner = model
        while (inner := getattr(inner, "module", getattr(inner, "_orig_mod", None))) is not None:
            self._wrapped_ids.add(id(inner))
        if self.searches_updates:
            self.manual_updates.before_new_model()
        on_delete(model, self._forget_model, id(model))
        if self.replicated:
            self.facts.add_ddp_model(model, self.ddp.add(model))

    def forwards_used(self, uses: ForwardUses, loss: Any) -> None:
        """Decide which of several forwards a backward uses."""
        try:
            uses.backward(loss)
        except Exception as problem:
            self.disable(problem)

    def _before_grad(self, args: Args, kwargs: Kwargs) -> AfterCall:
        outputs = args[0] if args else kwargs.get("outputs")
        return lambda gradients: self.hot.differentiated(outputs, gradients)

    def _expect_facts(self) -> None:
        """Examine the next call of a model, because this call may show new facts."""
        self.settled_model_id = 0
        self.hot.refresh()

    def _forget_model(self, model_id: int) -> None:
        """Forget a deleted model, because a new model may get the same id."""
        self.ddp.forget(model_id)
        self._model_ids.discard(model_id)
        self._expect_facts()

    def wrap_compiled(self, module: ModuleType) -> None:
        """Hook the calls of compiled models: the hooks of the modules inside are not called."""
        self._compiled_class = module.OptimizedModule
        original = module.OptimizedModule.__call__
        wrapped = self.hot.around_compiled(original)
        self.patches.add((module.OptimizedModule, "__call__", original, wrapped))

    def _before_compile(self, args: Args, kwargs: Kwargs) -> None:
        """Remove the hooks on every module, because a compiler would trace these hooks."""
        self.facts.expect_compiler()
        self._ignore_tracing()
        self.discovery.interrupt()

    def _before_module_compile(self, args: Args, kwargs: Kwargs) -> None:
        """Hook the module's class, whose ``__call__`` is still used after ``module.compile()``."""
        self._before_compile(args, kwargs)
        self.discovery.add_compiled(args[0])

    def _ignore_tracing(self) -> None:
        self.may_compile = self.patches.may_compile = self.ledgers.may_compile = True
        self.hot.refresh()

    def _before_wait(self, args: Args) -> AfterCall:
        if self._begun:
            self._open_waits += 1
            if not self.facts.exchanged:
                self.facts.exchanged = self.hot.has_backward() or private_api.may_average(args)
            if not self.hot.has_backward() and self.facts.on_exchange():
                self._expect_facts()
            self.add_event(("begin", "sync"))
        return self._after_wait

    def _after_wait(self, result: Any = None) -> None:
        if self._open_waits:
            self._open_waits -= 1
            self.add_event(("end",))

    def before_activity(self, *, backward: bool = False, loss: Any = None) -> None:
        """Check for a manual update before the next activity."""
        if self.searches_updates:
            self.patches.safe(self._check_manual_update)(backward, loss)

    def _check_manual_update(self, backward: bool, loss: Any) -> None:
        if backward and not self._called_model:
            self.manual_updates.before_backward_alone(loss)
        self.manual_updates.before_activity(backward)

    def after_backward(self, loss: Any) -> None:
        """Note a backward for manual updates; begin to search for them if nobody does yet."""
        if not self.searches_updates:
            self.searches_updates = True
            self.manual_updates.search(has_optimizers=True)
            self._expect_facts()
        elif not self._called_model and self.watcher.steps:
            self.observer.unseen_model = True
            self._check_discovery()
        self._called_model = False
        self.patches.safe(self.manual_updates.after_backward)(loss)

    def before_optimizer_step(self, optimizer: Any) -> None:
        """Stop looking for manual updates: an optimizer steps."""
        if self.manual_updates.has_begun:
            self.add_event(("take_over", id(optimizer)))
        self._end_manual_updates()

    def _end_manual_updates(self) -> None:
        self.searches_updates = False
        self._expect_facts()

    def _give_up_manual_updates(self) -> None:
        """Stop looking for manual updates, because no weight changes."""
        self.max_backwards = sys.maxsize
        self._end_manual_updates()

    def _before_optimizer_init(self, args: Args, kwargs: Kwargs) -> AfterCall:
        self.training_threads.add(get_ident())
        if self.searches_updates:
            self._end_manual_updates()
        return lambda result: self._add_optimizer(args[0])

    def _add_optimizer(self, optimizer: Any) -> None:
        """Note a new optimizer; if a parameter belongs to no known model, find its model."""
        on_delete(optimizer, self.patches.safe(self._forget_optimizer), id(optimizer))
        self._optimizer_ids.add(id(optimizer))
        self.add_event(("created", id(optimizer)))
        if needs_closure(optimizer):
            self._watch_beginnings()
        if not self.optimizer_seen:
            return
        groups = getattr(optimizer, "param_groups", ())
        parameters = [parameter for group in groups for parameter in group["params"]]
        discovery = self.discovery
        if not self.facts.compiled and not discovery.active and not discovery.covers(parameters):
            self._discover()

    def _forget_optimizer(self, optimizer_id: int) -> None:
        """Forget a deleted optimizer, because a new optimizer may get the same id."""
        self.stepped_optimizers.discard(optimizer_id)
        self._optimizer_ids.discard(optimizer_id)
        self.add_event(("deleted", optimizer_id))

    def _discover(self) -> None:
        """Hook every module again for some steps, to find another model that is trained."""
        self._discovery_end = self.watcher.steps + DISCOVERY_STEPS
        self._known_models = self.discovery.found
        self.discovery.install()
        self.input_has_batch = False  # Until the model is found, the loader's batches tell.
        self._expect_facts()

    def _check_discovery(self) -> None:
        """End the search for trained models when it is complete; begin one if a model is unseen."""
        steps, discovery = self.watcher.steps, self.discovery
        unseen, self.observer.unseen_model = self.observer.unseen_model, False
        if discovery.active:
            # Optimizers that have not stepped yet may soon train models of their own.
            has_idle = bool(self._optimizer_ids - self.stepped_optimizers)
            wait = has_idle and steps < MAX_UNSTEPPED_DISCOVERY
            if steps >= self._discovery_end and not wait:
                discovery.settle()
                self._futile_discoveries += discovery.found == self._known_models
        elif (
            unseen and not self.facts.compiled and self._futile_discoveries < MAX_FUTILE_DISCOVERIES
        ):
            self._discover()

    def before_step(self, *, nested: bool) -> None:
        """Note an optimizer's step."""
        if nested:
            self._plain_steps = False
        self.optimizer_seen = True

    def _before_scaler_step(self, args: Args, kwargs: Kwargs) -> AfterCall:
        """Record the scaler's step, so that steps it skips after an overflow count too."""
        optimizer = args[1] if len(args) > 1 else kwargs["optimizer"]
        self._watch_beginnings()  # The optimizer's step is inside the scaler's.
        self.ledgers.scaler_steps += 1
        self.hot.step_begins(optimizer, args, kwargs, sys._getframe(1))
        return lambda result: self.hot.step_ends(optimizer, (), {})

    def _watch_beginnings(self) -> None:
        """From now on note where optimizer steps begin; ``after_steps`` may have removed the hook
        because no step had anything inside it.
        """
        if self._plain_steps:
            self._plain_steps = False
            self._optimizer_hooks[0].remove()
            self._optimizer_hooks[0] = register_optimizer_step_pre_hook(self.hot.step_begins)

    def before_zero_grad(self, optimizer: Any) -> None:
        """End the step here if the optimizer is compiled: then its step hooks do not run."""
        if self.may_compile and self.hot.has_backward():
            self.add_event(("begin", "optimizer"))
            self.hot.step_ends(optimizer, (), {})

    def after_steps(self, optimizer: Any) -> None:
        """Do what is due after this step, and set how many further steps may be buffered."""
        self._stretches.end_step()
        self.training_threads.add(get_ident())
        steps = self.watcher.steps
        self.facts.after_step(optimizer)
        self._check_discovery()
        if steps == INSPECTED_STEPS and self.max_backwards == MAX_FIRST_BACKWARDS:
            self.max_backwards = 0  # From now on, the most backwards of any step so far count.
        nested = self.observer.timeline.nested_optimizer
        if self._plain_steps and not nested and steps >= INSPECTED_STEPS:
            # Without this hook, the time from backward to the step's end counts as optimizer.
            self._optimizer_hooks[0].remove()
        if steps >= self.ddp.next_reading_step:
            overlap = self.ddp.read_statistics(steps)
            if overlap is not None:
                self.observer.step_facts["hidden"] = overlap
        self.ddp.check_sync(self.observer.last_laps[0])
        if self.profile.pending:
            self.profile.after_step(self.facts.device)
        if self.watcher.done:
            self.watcher.stop_program()
        watcher, facts, ddp = self.watcher, self.facts, self.ddp
        next_step = min(watcher.next_urgent_step, facts.next_step, ddp.next_reading_step)
        unbuffered = self.profile.pending or self.discovery.active
        self.buffer.max_steps = 0 if unbuffered else next_step - steps - 1

    # Loaders, checkpoints, rendezvous, end.

    def _before_iter(self, args: Args, kwargs: Kwargs) -> AfterCall | None:
        loader = args[0]
        if self.hot.is_fetching():
            return None  # A loader that feeds the dataset of another one.
        self.facts.on_epoch(loader)
        self.loaders.on_epoch(loader)
        if self.certificate is not None:
            self.certificate.on_epoch(loader)
        self._begun = True
        self.input_has_batch = False  # Inspect the first batch: an unknown model may be trained.
        self._expect_facts()
        if get_ident() not in self.training_threads:
            return lambda iterator: self.ledgers.begin_pass(loader, iterator)
        self.add_event(("fetch", loader_key(loader)))

        def after_iter(iterator: Any) -> None:
            self.ledgers.begin_pass(loader, iterator)
            # The new iterator has returned no batch yet; this event ends a fetch without a batch.
            self.add_event(("exhausted",))

        return after_iter

    def inspect_batch(self, batch: Any, iterator: Any) -> tuple[Any, ...]:
        """Return the event of a loader's batch, with its samples and rows; gather facts from it."""
        try:
            drawn, exact = private_api.drawn_samples(iterator), private_api.draws_exactly(iterator)
            loader_id = getattr(iterator, private_api.LOADER, 0)
            self._has_any_size |= drawn is None
            counts_drawn = exact and loader_id not in self._filtering_loaders
            samples, rows, tensor = samples_rows_and_tensor(batch, drawn, exact=counts_drawn)
            if exact and drawn and samples == rows and (samples or 0) < drawn:
                self._filtering_loaders.add(loader_id)
            if counts_drawn and drawn == 1 and private_api.has_own_collate(iterator):
                if rows is None:  # An object of the program's own.
                    many = samples_and_tensor(getattr(batch, "__dict__", {}))[0] or 0
                else:
                    many = rows if has_equal_rows(batch, rows) else 1
                self._rows_of_one.setdefault(loader_id, Counter())[many] += 1
            self.facts.on_batch(tensor)
            self.ledgers.note_batch(iterator, samples, drawn)
            self._stretches.begin_batch(tensor, rows)
        except Exception as problem:
            self.disable(problem)
            return ("fetched", None)
        return ("fetched", samples, rows if rows != samples else None)

    def wrap_saving(self, owner: Any, name: str) -> None:
        """Hook a function that writes checkpoints."""

        def before_save(args: Args, kwargs: Kwargs) -> AfterCall | None:
            if get_ident() not in self.training_threads:
                return None
            self.before_activity()
            self._begun = True
            self.add_event(("saving",))
            return lambda result: self.add_event(("saved",))

        if hasattr(owner, name):
            self.patches.wrap(owner, name, before_save)

    def _before_rendezvous(self, args: Args, kwargs: Kwargs) -> AfterCall:
        self._has_process_group, start = True, time.perf_counter()
        return lambda result: self.watcher.record_rendezvous(start, time.perf_counter())

    def _before_destroy(self, args: Args, kwargs: Kwargs) -> None:
        """Prevent a hang of PyTorch's, which the time that watching takes may make likelier."""
        if self._has_process_group and dist.is_initialized() and dist.get_backend() == "gloo":
            gloo.wait_for_release()

    def flush_events(self) -> None:
        """Process the buffered events after the program has failed."""
        self.profile.finish()
        self.buffer.process()
        if ledgers := self.ledgers.close():
            self.watcher.note(**ledgers)

    def _finish(self) -> dict[str, Any]:
        """Process the last events when the program ends; return the facts of this rank."""
        self.before_activity()
        self.profile.finish()
        loader = self.loaders.collect_at_end()
        self.buffer.process()
        self.add_event(("finish",))
        self.buffer.process()
        self.facts.noted["adds_calls"] = self.observer.counts.adds_calls
        self.facts.noted["rows_unclear"] = self.observer.counts.rows_unclear
        trained = self._rows_of_one.keys() & self.observer.pauses.training_loaders
        if trained:
            rows = [usual_rows(self._rows_of_one[loader]) for loader in trained]
            self.facts.noted["rows_of_one"] = 0 if 0 in rows else max(rows)
        values = {**self.facts.collect_at_end(), **loader, **self.ledgers.close()}
        if self.ddp.facts:
            values["ddp"] = list(self.ddp.facts.values())
        if self.watcher.steps and self._clock_chosen:
            values["memory"] = devices.peak_memory(self.facts.device)
        if self._has_process_group:
            gloo.wait_for_release()
        return values


def needs_closure(optimizer: Any) -> bool:
    """Return whether an optimizer's ``step`` must be given a closure, as that of LBFGS."""
    try:
        closure = signature(type(optimizer).step).parameters.get("closure")
    except (AttributeError, TypeError, ValueError):  # It is no Python function.
        return False
    return closure is not None and closure.default is Parameter.empty


def usual_rows(counts: Counter[int]) -> int:
    """Return the rows that at least half of the batches have; 1 if there are none: then a batch is
    one sequence, whose length varies.
    """
    rows, count = counts.most_common(1)[0]
    return rows if 2 * count >= counts.total() else 1
