"""Ask PyTorch to tell when a step's activities begin and end.

Public interfaces first: optimizer step hooks, module hooks. Where there is
none a function or a method of a class is wrapped, never one of an object, so
that pickling and copying a model stay what they were. Hooks do nothing while
a graph is being compiled, and nothing in a forked child.
"""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import is_grad_enabled
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from scalewise.probe.torch import device as devices
from scalewise.probe.torch.last_gradient import LastGradient
from scalewise.probe.torch.sync_timer import Patch, wrap_wait
from scalewise.watch import guest as guests
from scalewise.watch.guest import Guest, Place
from scalewise.watch.torch import private_api
from scalewise.watch.torch.discovery import (
    Discovery,
    batch_of,
    is_one_sample,
    when_gone,
)
from scalewise.watch.torch.event_buffer import Tape
from scalewise.watch.torch.facts import Facts
from scalewise.watch.torch.hot_hooks import Named, Words, quick
from scalewise.watch.torch.loaders import Loaders
from scalewise.watch.torch.manual_updates import ByHand
from scalewise.watch.torch.profiler import Trace

FOUND = 2
"""Steps in which every module is looked at, to find the models that are trained."""
KNOWN = 10
"""Steps after which a loader's batch is not looked into, if the model's input tells enough."""

LET_GO = 0.05
"""Seconds for the threads of Gloo to let their last tensors go: one that does so after the
interpreter has ended aborts the process, https://github.com/pytorch/pytorch/issues/190489."""

_hooks: "Hooks | None" = None


def install(folder: Path) -> None:
    """Put the hooks in; once per process."""
    global _hooks
    if _hooks is None:
        _hooks = Hooks(guests.the_guest(folder, place))
        _hooks.install()


def extend(name: str, module: ModuleType) -> None:
    """Put further hooks in, where a module came later."""
    if _hooks is None:
        return
    if name == "torch._dynamo.eval_frame":
        _hooks.wrap_compiled(module)
    elif name == "torch.distributed.checkpoint":
        for each in ("save", "async_save"):
            _hooks.wrap_saving(module, each)
    elif name == "safetensors.torch":
        _hooks.wrap_saving(module, "save_file")


def place() -> Place:
    """Return this process's rank and world: PyTorch's own word counts most."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    rank, world = guests.place()
    return rank, 1 if world > 1 else world


class Hooks:
    """What PyTorch tells, passed on to the observer."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.tape = Tape(guest)
        self.observer = self.tape.observer
        self.note = self.tape.note
        self.facts = Facts(guest)
        self.loaders = Loaders(guest, self.observer)
        self.trace = Trace(guest, self.tape, lambda: place()[0])
        self.wary = self.replicated = self.told_batch = False
        self.model = 0
        self.by_hand: ByHand | None = ByHand(self._stepped_by_hand, self._drop_by_hand)
        self.quick = quick(guest, self.tape, self)
        self.discovery = Discovery(
            self._safe(self.forward), self._end_forward, self.quick.around_forward
        )
        self.ddp: dict[int, LastGradient] = {}
        self._met_models: set[int] = set()
        self._bundles: dict[int, dict[str, Any]] = {}
        """What DDP says of how it bundles gradients, by model."""
        self._clock_chosen = False
        self._plain_steps = True
        """Whether no optimizer was given a closure, or called inside another."""
        self._hooked = False
        """Whether an optimizer has told of a step."""
        self._begun = False
        """Whether anything of a step has begun."""
        self._saves = 0
        self._waits = 0
        self._attempting: Any = None
        self._making: Any = None
        self._found_by = FOUND
        """The step by which the models that are trained are known."""
        self._patches: list[Patch] = []
        self._handles: list[Any] = []
        self._meeting = 0.0
        self._next_sample = 2
        """The step at which DDP is asked for its own timings."""

    def install(self) -> None:
        """Put everything in that is known when PyTorch has just been imported."""
        for owner, name, around in (
            (torch.autograd, "backward", self.quick.around_backward),
            (DistributedDataParallel, "forward", self.quick.around_forward),
            (DataParallel, "forward", self.quick.around_forward),
        ):
            original = getattr(owner, name)
            self._patches.append((owner, name, original, around(original)))
        self._wrap(DataLoader, "__iter__", self._iterate, self._iterated)
        waits = wrap_wait(self._safe(self._wait), self._safe(self._waited))
        self._patches += private_api.wrap_fetch(self.quick.around_fetch) + waits
        for owner, name in private_api.buffer_exchange():
            self._wrap(owner, name, self._exchange, self._exchanged)
        self._wrap(torch.optim.Optimizer, "zero_grad", self._zero, None)
        self._wrap(torch.optim.Optimizer, "__init__", self._make_optimizer, self._made_optimizer)
        scaler = torch.amp.GradScaler
        self._wrap(scaler, "step", self._attempt, self._attempted)
        self.wrap_saving(torch, "save")
        self._wrap(dist, "init_process_group", self._meet, self._met)
        self._wrap(torch.nn.Module, "compile", self._compiles_itself, None)
        self._wrap(torch, "compile", self._compiles, None)
        if hasattr(torch, "export"):
            self._wrap(torch.export, "export", self._exports, None)
        self.facts.install()
        self.discovery.install()
        self.guest.at_end(self._finish)
        self.guest.catch_up = self._catch_up
        self.guest.switched = self.tape.changed = self.quick.refresh
        self.quick.refresh()
        self.put()

    def put(self) -> None:
        """Put every wrapper and hook in its place."""
        self._handles = [
            register_optimizer_step_pre_hook(self.quick.step_begins),
            register_optimizer_step_post_hook(self.quick.step_ends),
        ]
        for owner, name, _, watched in self._patches:
            setattr(owner, name, watched)

    def remove(self) -> None:
        """Leave PyTorch as it was."""
        for handle in self._handles:
            handle.remove()
        for owner, name, original, watched in self._patches:
            if getattr(owner, name) is watched:
                setattr(owner, name, original)

    # Wrapping.

    def _safe(self, function: Callable[..., None]) -> Callable[..., None]:
        """Let a hook fail without the training noticing: then nothing is watched any more."""

        guest, compiling = self.guest, torch.compiler.is_compiling

        @functools.wraps(function)
        def hook(*words: Any) -> None:
            if guest.on and not (self.wary and compiling()):
                try:
                    function(*words)
                except Exception as problem:
                    self.give_up(problem)

        return hook

    def give_up(self, problem: Exception) -> None:
        """Stop watching; the training goes on."""
        self.guest.switch_off(problem)
        self.remove()
        self.discovery.remove()
        for last in self.ddp.values():
            last.remove()

    def _wrap(
        self,
        owner: Any,
        name: str,
        before: Callable[..., Any],
        after: Callable[..., Any] | None,
    ) -> None:
        """Put two calls around a function: of a module, or of a class for all its objects."""
        original = getattr(owner, name)
        guest, compiling, give_up = self.guest, torch.compiler.is_compiling, self.give_up

        @functools.wraps(original)
        def watched(*words: Any, **named: Any) -> Any:
            if not guest.on or (self.wary and compiling()):
                return original(*words, **named)
            try:
                before(words, named)
            except Exception as problem:
                give_up(problem)
                return original(*words, **named)
            try:
                answer = original(*words, **named)
            except BaseException:
                if after is not None and guest.on:
                    self._unwind(after)
                raise
            if after is not None and guest.on:
                try:
                    after(answer)
                except Exception as problem:
                    give_up(problem)
            return answer

        self._patches.append((owner, name, original, watched))

    def _put_last(self) -> None:
        owner, name, _, watched = self._patches[-1]
        setattr(owner, name, watched)

    def _unwind(self, after: Callable[..., Any]) -> None:
        """The program's own call failed: leave the books in order for what follows."""
        try:
            after(None)
        except Exception as problem:
            self.give_up(problem)

    # The model.

    def forward(self, words: Words, named: Named) -> None:
        """Tell that a model is called, and learn from it."""
        self.begins()
        model, training = words[0], is_grad_enabled()
        known = id(model) == self.model or not training
        unsure = training and not model.training and not self.observer.lenient
        if not known:
            self._meet_model(model)
        samples, sample = batch_of(words[1:])
        if sample is None:
            samples, sample = batch_of(named)
        if sample is not None and is_one_sample(model, sample):
            samples = 1
        self.told_batch = samples is not None
        syncing = training and self.replicated and model.require_backward_grad_sync
        if unsure:
            self.note(("unsure", samples, syncing, id(model)))
        else:
            self.note(("forward", samples, training, syncing, id(model)))
        if not known:
            self._wonder(model, sample)

    def _end_forward(self) -> None:
        if self.guest.on:
            self.note(("forwarded",))

    def _meet_model(self, model: Any) -> None:
        """Another model than before is trained; in DDP, from now on its last gradient is told."""
        if not self._clock_chosen:
            self._choose_clock(model)
        self.replicated = isinstance(model, DistributedDataParallel)
        if id(model) in self._met_models:
            return
        self._met_models.add(id(model))
        when_gone(model, self._forget, id(model))
        if self.replicated:
            private_api.sample_ddp(model, private_api.SAMPLE_RATES[0])
            last = self.ddp[id(model)] = LastGradient(model, self.quick.last_gradient)
            self.facts.wrapped(model, last.unused)

    def _wonder(self, model: Any, sample: Any) -> None:
        """Note what can be learned from a call of a model, as long as there is something."""
        if self.facts.curious:
            self.facts.called(model, sample)
        known = not self.facts.curious and self.by_hand is None
        self.model = id(model) if known else 0

    def _meet_anew(self) -> None:
        """There may be something to learn from the next call of a model."""
        self.model = 0
        self.quick.refresh()

    def _forget(self, model: int) -> None:
        """A model is no more, and another may get its id."""
        self.ddp.pop(model, None)
        self._met_models.discard(model)
        self._meet_anew()

    def _choose_clock(self, model: Any) -> None:
        """Mark laps in the device's queue where the model lies on one."""
        self._clock_chosen = self._begun = True
        first = next((each for each in model.parameters()), None)
        device = first.device if first is not None else torch.device("cpu")
        if device.type in ("cuda", "xpu"):
            self.guest.clock = devices.EventClock(device)
            self.tape.use(self.guest.clock.mark)
        self.facts.device = device

    def wrap_compiled(self, module: ModuleType) -> None:
        """Watch the calls of compiled models: inside, nothing can be seen."""
        self._wrap(module.OptimizedModule, "__call__", self._compiled_forward, self._forwarded)
        self._put_last()

    def _compiled_forward(self, words: Words, named: Named) -> None:
        self._compiles(words, named)
        self.forward((getattr(words[0], "_orig_mod", words[0]), *words[1:]), named)

    def _forwarded(self, answer: Any) -> None:
        self.note(("forwarded",))

    def _compiles(self, words: Words, named: Named) -> None:
        """Hooks on every module and a compiler do not go together."""
        self.facts.compiled = True
        self._beware()
        self.discovery.remove()

    def _compiles_itself(self, words: Words, named: Named) -> None:
        """A model that is compiled in place is called as before."""
        self._compiles(words, named)
        self.discovery.know(words[0])

    def _exports(self, words: Words, named: Named) -> None:
        self._beware()

    def _beware(self) -> None:
        self.wary = True
        self.quick.refresh()

    def _exchange(self, words: Words, named: Named) -> None:
        self._wait(())

    def _exchanged(self, answer: Any) -> None:
        self._waited()

    def _wait(self, words: Words) -> None:
        if self._begun:
            self._waits += 1
            if not self.facts.exchanged:
                after = self.tape.holds(("backward",))
                self.facts.exchanged = after or private_api.may_average(words)
            self.note(("begin", "sync"))

    def _waited(self) -> None:
        if self._waits:
            self._waits -= 1
            self.note(("end",))

    # The optimizer, or what is in its place.

    def begins(self, *, backward: bool = False) -> None:
        """Something begins: where weights are updated by hand, maybe after a step."""
        if self.by_hand is not None:
            self._safe(self.by_hand.begins)(backward)

    def backwarded(self, loss: Any) -> None:
        """Gradients are there."""
        if self.by_hand is not None:
            self._safe(self.by_hand.backwarded)(loss)

    def _stepped_by_hand(self, by_hand: ByHand) -> None:
        self.quick.step_ends(by_hand, (), {})

    def _drop_by_hand(self) -> None:
        """There is an optimizer, or nothing is trained."""
        self.by_hand = None
        self._meet_anew()

    def _make_optimizer(self, words: Words, named: Named) -> None:
        self._making = words[0]
        if self.by_hand is not None:
            self._drop_by_hand()

    def _made_optimizer(self, answer: Any) -> None:
        """There is another optimizer, and maybe another model with it."""
        optimizer, self._making = self._making, None
        when_gone(optimizer, self._safe(self.note), ("gone", id(optimizer)))
        if not self._hooked:
            return
        self.note(("made", id(optimizer)))
        groups = getattr(optimizer, "param_groups", ())
        learnt = [each for group in groups for each in group["params"]]
        if not self.facts.compiled and not self.discovery.on and not self.discovery.knows(learnt):
            self._found_by = self.guest.steps + FOUND
            self.discovery.install()
            self._meet_anew()

    def step_begins(self, *, nested: bool) -> None:
        """The step of an optimizer begins: whoever tells of it needs not be asked otherwise."""
        if nested:
            self._plain_steps = False
        if not self._hooked:
            self._take_out_zero()

    def _take_out_zero(self) -> None:
        """Optimizers tell of their steps: there is nothing to be learned from their clearing."""
        self._hooked = True
        for patch in [each for each in self._patches if each[1] == "zero_grad"]:
            setattr(*patch[:3])
            self._patches.remove(patch)

    def _attempt(self, words: Words, named: Named) -> None:
        self._attempting = words[1] if len(words) > 1 else named["optimizer"]
        if self._plain_steps:
            self._plain_steps = False
            self._handles[0].remove()
            self._handles[0] = register_optimizer_step_pre_hook(self.quick.step_begins)
        self.quick.step_begins(self._attempting, words, named)

    def _attempted(self, answer: Any) -> None:
        """A step that was skipped because of an overflow is a step all the same."""
        self.quick.step_ends(self._attempting, (), {})

    def _zero(self, words: Words, named: Named) -> None:
        """A compiled optimizer tells of no step; that its gradients are cleared tells as much."""
        if self.wary and not self._hooked and self.tape.holds(("backward",)):
            self.note(("begin", "optimizer"))
            self.quick.step_ends(words[0], (), {})

    @property
    def curious(self) -> bool:
        """Whether a loader's batch is looked into even if the model's input tells enough."""
        return self.guest.steps <= KNOWN or self.observer.counts.doubts

    @property
    def lenient(self) -> bool:
        """Whether a model that is set to evaluate is trained all the same."""
        return self.observer.lenient

    def stepped(self, optimizer: Any) -> None:
        """Do what need not be done at every step."""
        steps = self.guest.steps
        self.facts.stepped(optimizer)
        if self.discovery.on and steps >= self._found_by:
            self.discovery.settle()
        if self._plain_steps and not self.observer.steps_inside and steps >= KNOWN:
            self._handles[0].remove()  # What lies between backward and its end is the optimizer's.
        if steps >= self._next_sample:
            self._sample_ddp(steps)
        if self.ddp and "sync" not in self.observer.last_row[0]:
            for last in self.ddp.values():
                last.miss()
        if self.trace.on:
            self.trace.stepped(self.facts.device)
        if self.guest.done:
            self.guest.leave()
        until = min(self.guest.wanted, self.facts.wanted, self._next_sample)
        self.tape.room = 0 if self.trace.on or self.discovery.on else until - steps - 1

    def _sample_ddp(self, steps: int) -> None:
        """Ask DDP for its own timings: every tenth step, later every hundredth."""
        rate = private_api.SAMPLE_RATES[steps >= private_api.SAMPLE_RATES[1]]
        self._next_sample = steps + rate
        for each, last in self.ddp.items():
            private_api.sample_ddp(last.model(), rate)
            self._bundles[each] = private_api.ddp_facts(last.model())
            if said := private_api.ddp_seconds(last.model()):
                self.observer.side(hidden=said["overlap"])

    # Data, checkpoints, meeting.

    def _iterate(self, words: Words, named: Named) -> None:
        loader = words[0]
        self.facts.iterates(loader)
        self.loaders.iterates(loader)
        self._begun = True
        self._meet_anew()
        self.note(("fetch", id(loader)))

    def _iterated(self, iterator: Any) -> None:
        self.note(("exhausted",))

    def look_into(self, batch: Any, iterator: Any) -> int | None:
        """Return the samples of a loader's batch."""
        try:
            samples, sample = batch_of(batch, private_api.drawn(iterator))
            self.facts.fetched(sample)
        except Exception as problem:
            self.give_up(problem)
            return None
        return samples

    def wrap_saving(self, owner: Any, name: str) -> None:
        """Watch a function that writes checkpoints; one inside another is one."""
        if hasattr(owner, name):
            self._wrap(owner, name, self._save, self._saved)
            self._put_last()

    def _save(self, words: Words, named: Named) -> None:
        self.begins()
        self._saves += 1
        self._begun = True
        self.note(("begin", "checkpoint") if self._saves > 1 else ("saving",))

    def _saved(self, answer: Any) -> None:
        self._saves -= 1
        self.note(("saved",))

    def _meet(self, words: Words, named: Named) -> None:
        self._meeting = time.perf_counter()

    def _met(self, answer: Any) -> None:
        self.guest.met(self._meeting, time.perf_counter())

    def _catch_up(self) -> None:
        """The program has failed: tell what there is."""
        self.trace.finish()
        self.tape.understand()

    def _finish(self) -> dict[str, Any]:
        """Tell what can only be told at the end."""
        self.begins()
        self.trace.finish()
        loader = self.loaders.at_end()
        self.tape.understand()
        self.note(("finish",))
        self.tape.understand()
        self.facts.noted["adds_calls"] = self.observer.counts.adds_calls
        told = {**self.facts.at_end(), **loader}
        if self._bundles:
            told["ddp"] = list(self._bundles.values())
        if self.guest.steps and self._clock_chosen:
            told["memory"] = devices.peak_memory(self.facts.device)
        if self._meeting:
            time.sleep(LET_GO)
        return told
