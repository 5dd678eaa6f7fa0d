"""Note what silently ruins scaling: small facts, gathered while nobody waits for them.

Almost everything is learned in the first steps. After that a call here is one
comparison, but for a glance at the weights whenever the number of steps has
doubled. A device is waited for in the first three batches and at the very end,
never between. What cannot be noted is missing; the watching goes on.
"""

import os
import sys
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data.distributed import DistributedSampler

from scalewise.probe.environment import environment
from scalewise.probe.torch import device as devices
from scalewise.record.write import write_json
from scalewise.watch import guest as guests
from scalewise.watch.guest import Guest
from scalewise.watch.torch.call_counters import Calls
from scalewise.watch.torch.fingerprints import Weights, batch_digest, sharded, split
from scalewise.watch.torch.manual_updates import ByHand

BATCHES = 3
"""Training batches that are compared between ranks."""
COUNTED = (5, 25)
"""Between these steps the waits for an accelerator are counted."""
UNSEEN = {"apex", "colossalai", "deepspeed", "hivemind", "horovod", "megatron"}
"""Libraries that exchange gradients in ways of their own."""
SETTLED = 50
"""Steps after which models are looked at no more."""


class Facts:
    """What is noted of one rank beside its times."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.device = torch.device("cpu")
        self.noted: dict[str, Any] = {}
        self._calls = Calls()
        self._compiled = False
        self._weights: Weights | None = None
        self._ddp: list[tuple[bool, set[str]]] = []
        """Of each DDP model: whether it looks for unused parameters, and those that were."""
        self.exchanged = False
        """Whether ranks were seen to exchange what may be gradients or weights."""
        self._settled = False
        self.curious = True
        """Whether the next call of a model can teach something."""
        self._digests: list[str | None] = []
        self._fetched: Any = None
        """The newest batch of a loader, until enough of them are known."""
        self._loads = False
        """Whether a loader has given a batch."""
        self._pass: dict[str, Any] | None = None
        """The loader that has begun a pass, until it is known to be for training."""
        self._source = 0
        """The data that feeds training."""
        self._epochs: set[int] = set()
        self._passes = 0
        self._first = 0
        """The first optimizer."""
        self._next = 1
        """The step at which there is something to do."""
        self._doubled = 1
        """The step at which the weights are glanced at."""

    @property
    def wanted(self) -> int:
        """The step at which there is something to do."""
        return self._next

    @property
    def compiled(self) -> bool:
        """Whether anything was compiled."""
        return self._compiled

    @compiled.setter
    def compiled(self, value: bool) -> None:
        if not self._compiled:
            self._compiled = value
            self._calls.restore()  # A compiler must find PyTorch as it was.

    # What the hooks call.

    def install(self) -> None:
        """Begin."""
        self._careful(self._calls.install)

    def wrapped(self, model: Any, unused: set[str]) -> None:
        """A model is wrapped in DDP; ``unused`` will hold its parameters without a gradient."""
        self._ddp.append((bool(getattr(model, "find_unused_parameters", False)), unused))
        self._weights = None
        self.exchanged = True

    def called(self, model: Any, sample: Any) -> None:
        """A model is called for training."""
        self._careful(self._note_call, model, sample)
        self.curious = not self._settled or self._pass is not None

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has done a step."""
        if self.guest.steps < self._next:
            return
        self._careful(self._note_step, optimizer, self.guest.steps)

    def iterates(self, loader: Any) -> None:
        """A loader begins a pass."""
        self._careful(self._note_pass, loader)

    def fetched(self, sample: Any) -> None:
        """A loader gave a batch."""
        if len(self._digests) < BATCHES:
            self._fetched, self._loads = sample, True

    def at_end(self) -> dict[str, Any]:
        """Return the facts, and what every run tells of its device and versions."""
        self._calls.restore()
        if not self.guest.steps:
            return {}
        for each in (self._finish, self._finish_weights, self._finish_device):
            self._careful(each)
        told: dict[str, Any] = {
            "facts": self.noted,
            "device": devices.name(self.device),
            "threads": torch.get_num_threads(),
            "backend": self.noted.get("backend"),
        }
        if self.noted.get("rank") == 0:
            self._careful(self._tell_environment, told)
        return told

    # How it is noted.

    def _careful(self, function: Callable[..., None], *words: Any) -> None:
        """Let a fact be missing, rather than end the watching."""
        try:
            function(*words)
        except Exception as problem:
            missing = self.noted.setdefault("missing", [])
            if len(missing) < 10:
                missing.append(f"{function.__name__.strip('_')}: {problem!r}")

    def _note_call(self, model: Any, sample: Any) -> None:
        if self._pass is not None:
            self._begin_pass(self._pass)
            self._pass = None
        if len(self._digests) < BATCHES:
            self._note_batch(sample)
        if self._settled:
            return
        if self._weights is None:
            self._know(model, sample)
        if not self.noted.get("autocast"):
            self.noted["autocast"] = torch.is_autocast_enabled(self.device.type)

    def _know(self, model: Any, sample: Any) -> None:
        """Take this model as the one that is trained."""
        self._weights = Weights(model)
        learned = [each for each in model.parameters() if each.requires_grad]
        self.noted |= {
            "parameters": sum(each.numel() for each in learned),
            "dtype": str(learned[0].dtype).removeprefix("torch.") if learned else None,
            "data_parallel": isinstance(model, nn.DataParallel),
            "sharded": sharded(model),
            "split": split(model),
            "sequence_first": may_be_sequence(sample)
            and any(getattr(each, "batch_first", True) is False for each in model.modules()),
        }

    def _note_batch(self, sample: Any) -> None:
        """Note which samples are trained on: the loader's, for noise may be the model's input."""
        found, self._fetched = self._fetched, None
        if found is None:
            if self._loads:
                return
            found = sample
        self._digests.append(batch_digest(found))
        if self._loads and self.device.type == "cuda" and isinstance(found, torch.Tensor):
            self.noted["handed"] = {
                "bytes": found.numel() * found.element_size(),
                "pageable": found.device.type == "cpu" and not found.is_pinned(),
            }

    def _note_pass(self, loader: Any) -> None:
        """Remember a loader's pass, if it can be one of training."""
        data = id(loader.dataset)
        if self._source and data != self._source:
            return
        self._pass = {"data": data, "workers": loader.num_workers}
        self.curious = True
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, DistributedSampler) and sampler.shuffle:
            self._pass["epoch"] = sampler.epoch

    def _begin_pass(self, found: dict[str, Any]) -> None:
        """Training has begun on what a loader gives."""
        self._source = found["data"]
        self._passes += 1
        if "epoch" in found:
            self._epochs.add(found["epoch"])
        self.noted["workers"] = found["workers"]

    def _note_step(self, optimizer: Any, step: int) -> None:
        self._next = _next_after(step)
        if not self._first:
            self._note_place()
            self._note_optimizer(optimizer)
        self._note_rate(optimizer)
        if self.device.type != "cpu" and not self._compiled and step >= COUNTED[0]:
            self._count_waits(step)
        if step >= SETTLED:
            self._settled = True
            self._calls.restore()
        if step >= self._doubled:
            self._doubled = _doubled(step)
            if self._weights is not None and not self.noted["sharded"]:
                self._weights.glance(step)

    def _note_place(self) -> None:
        """Note who this rank is, while the ranks still know each other."""
        joined = dist.is_available() and dist.is_initialized()
        self.noted["rank"] = dist.get_rank() if joined else guests.place()[0]
        self.noted["backend"] = str(dist.get_backend()) if joined else None

    def _note_optimizer(self, optimizer: Any) -> None:
        group = optimizer.param_groups[0]
        self.noted["optimizer"] = type(optimizer).__name__
        self.noted["by_hand"] = isinstance(optimizer, ByHand)
        self.noted["rate"] = _plain(group.get("initial_lr", optimizer.defaults.get("lr")))
        self._first = id(optimizer)

    def _note_rate(self, optimizer: Any) -> None:
        """Note the highest learning rate seen: a schedule may lead up to it."""
        rate = _plain(optimizer.param_groups[0].get("lr"))
        if id(optimizer) == self._first and rate is not None:
            self.noted["highest_rate"] = max(rate, self.noted.get("highest_rate", rate))

    def _count_waits(self, step: int) -> None:
        if step < COUNTED[1]:
            self.noted.setdefault("waits", {"from": step})
            self._calls.count_waits()
        elif "waits" in self.noted and "to" not in self.noted["waits"]:
            self.noted["waits"]["to"] = step
            self._calls.restore_waits()

    # At the end.

    def _finish(self) -> None:
        self.noted |= {
            "compiled": self._compiled,
            "exchanged": self._known_exchange(),
            "samples": self._digests,
            "loads": self._loads,
            "emptied": self._calls.emptied,
            "autocast": self.noted.get("autocast", False) or self._calls.autocast,
        }
        if "waits" in self.noted:
            self.noted["waits"] |= {
                "to": self.noted["waits"].get("to", self.guest.steps),
                "count": self._calls.waits,
                "where": self._calls.busiest(),
            }
        searching = [unused for searches, unused in self._ddp if searches]
        if searching and self.guest.steps >= BATCHES:
            self.noted["searched"] = {"unused": sum(len(each) for each in searching)}
        if self._epochs:
            self.noted["passes"] = {"count": self._passes, "epochs": len(self._epochs)}
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        self.noted["cores"] = len(cores) if cores else os.cpu_count()
        self.noted["which_cores"] = blake2b(repr(cores).encode(), digest_size=6).hexdigest()

    def _known_exchange(self) -> bool | None:
        """Say whether ranks exchange anything; nothing where they might do so unseen."""
        if self.exchanged:
            return True
        return None if self._compiled or UNSEEN & sys.modules.keys() else False

    def _tell_environment(self, told: dict[str, Any]) -> None:
        told["environment"] = environment(devices.facts())
        write_json(self.guest.folder / "environment.json", told["environment"])

    def _finish_weights(self) -> None:
        if self._weights is not None:
            self.noted["weights"] = self._weights.sums()

    def _finish_device(self) -> None:
        self.noted["accelerator"] = None
        if self.device.type == "cpu":
            return
        self.noted["accelerator"] = f"{os.environ.get('CUDA_VISIBLE_DEVICES')} {self.device}"
        if self.device.type == "cuda":
            said = torch.cuda.get_device_properties(self.device)
            self.noted["accelerator"] = str(getattr(said, "uuid", self.noted["accelerator"]))
            self.noted["capability"] = [said.major, said.minor]
            self.noted["matmul"] = torch.get_float32_matmul_precision()
            self.noted["tf32"] = torch.backends.cuda.matmul.allow_tf32


def may_be_sequence(sample: Any) -> bool:
    """Say whether a model's input may be sequences: of tokens, or of vectors, but no images.

    >>> may_be_sequence(torch.zeros(35, 20)), may_be_sequence(torch.zeros(8, 3, 32, 32))
    (True, False)
    """
    return isinstance(sample, torch.Tensor) and sample.dim() in (2, 3)


def _doubled(step: int) -> int:
    """Return the next power of two."""
    return 1 << step.bit_length()


def _next_after(step: int) -> int:
    """Return the next step at which there is something to do.

    >>> [_next_after(step) for step in (0, 1, 2, 4, 5, 16, 25, 64)]
    [1, 2, 4, 5, 8, 25, 32, 128]
    """
    return min(each for each in (*COUNTED, SETTLED, _doubled(step)) if each > step)


def _plain(value: Any) -> float | None:
    """Return a number, unless a device would have to be asked for it."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) else None
