"""A training on one rank: process group, data, model, steps."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from scalewise import plugins
from scalewise.frameworks import Outline, Quality
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.loop import say
from scalewise.frameworks.lr_schedule import Rates
from scalewise.frameworks.part_options import options_for
from scalewise.frameworks.sampler import Shards, checks, in_steps, steps_of
from scalewise.frameworks.torch import workload
from scalewise.frameworks.torch.checkpoint.ema import EMA
from scalewise.frameworks.torch.checkpoint.state_bytes import optimizer_parameters, state_bytes
from scalewise.frameworks.torch.checkpoint.weights import gather_weights
from scalewise.frameworks.torch.input.batches import IGNORED_LABEL
from scalewise.frameworks.torch.input.data_sets import Data, load
from scalewise.frameworks.torch.input.loader import BatchLoader, Pass, PassSampler
from scalewise.frameworks.torch.models import compile_cache
from scalewise.frameworks.torch.models.block_compile import GRAPH_WARMUP_STEPS, eager_mode
from scalewise.frameworks.torch.parallel.batchnorm import convert_sync_batchnorm
from scalewise.frameworks.torch.parallel.clip import clip_gradients
from scalewise.frameworks.torch.parallel.mesh import build_mesh, rank_in_replica, replica_index
from scalewise.frameworks.torch.precision import LossScaler, apply_precision
from scalewise.frameworks.torch.task import (
    Parallel,
    Task,
    build_model,
    optimizer_factory,
    refuse_optimizer_step,
)
from scalewise.frameworks.torch.timing.collective_bytes import CollectiveCounter
from scalewise.frameworks.torch.timing.flops import flops_per_sample
from scalewise.frameworks.torch.timing.gradient_timing import GradientTimer
from scalewise.probe import Laps, Probe, Unwatched
from scalewise.probe.torch import device as devices
from scalewise.probe.torch.sync_timer import SyncTimer
from scalewise.record import checkpoints
from scalewise.record.checkpoints import Progress
from scalewise.spec import RunSpec

if TYPE_CHECKING:  # What PyTorch needs for them takes a second to import.
    from scalewise.frameworks.torch.checkpoint.checkpoint_files import Checkpoints

LOSSES_PER_STACK = 1000
"""Losses kept one by one, on the device, before they are put together."""
MAX_LISTED_FILES = 100
"""Files that a rank names which it cannot read; its log has all."""


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator["TorchSession"]:
    """Set up a training, its spans told to the probe, and take it down again."""
    if spec.compile:
        compile_cache.use_study_cache(probe.folder.parent)
    device = devices.bind(spec)
    backend, why = devices.backend(spec, device)
    probe.note(device=devices.name(device), backend=backend, threads=torch.get_num_threads())
    if rank == 0:
        say(f"backend        {backend}: {why}")
    with probe.span("rendezvous"):
        dist.init_process_group(backend)
        dist.barrier()
    with probe.span("data"):
        source = Source.of_run(spec)
        listed = source.kind == "images"
        data = load(source, spec, _told) if listed else _in_turn(lambda: load(source, spec))
        data = data.near(device, source)
    if data.on_device and rank == 0:
        say("data           lies on the device: nothing loads or travels")
    with probe.span("build"):
        training = TorchSession(spec, data, device)
        # From here on chance (dropout) is each rank's own.
        torch.manual_seed((spec.seed + spec.repeat << 20) + rank)
    with devices.attention(device):
        if spec.compile:
            with probe.span("compile"):
                training.compile()
            if graphs := compile_cache.graph_counts():
                probe.note(compiled=graphs)
                if rank == 0:
                    say(f"compiled       {graphs['made']} graphs anew, {graphs['found']} found")
            recorded = spec.compile == "graphs" and device.type != "cpu"
            if recorded and rank == 0 and (slow := compile_cache.skipped_cuda_graphs()):
                say(f"compiled       {slow} of them cannot be replayed, only started bit by bit")
        if device.type != "cpu":
            probe.use(devices.EventClock(device))
        yield training
    if lost := training.left_out():
        probe.note(left_out={"count": len(lost), "paths": lost[:MAX_LISTED_FILES]})
    with probe.span("shutdown"):
        training.close()
        dist.barrier()
        dist.destroy_process_group()


def _in_turn(prepare: Callable[[], Data]) -> Data:
    """Let one rank prepare the data while the others wait; then they read it too."""
    first = int(os.environ.get("LOCAL_RANK", "0")) == 0
    data = prepare() if first else None
    dist.barrier()
    return data or prepare()


def _told(make: Callable[[], bytes]) -> bytes:
    """Let one rank find something out and tell all: nobody else asks the file system."""
    box: list[bytes | None] = [make() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box)
    found = box[0]
    assert found is not None
    return found


def initial_model(spec: RunSpec, data: Data, device: torch.device) -> nn.Module:
    """Return the run's model, its weights as this kind of device draws them at the run's seed.

    Made where it is used: hundreds of millions of weights are drawn there in no time. What
    convolutions multiply lies there as images come, channels last.
    """
    torch.manual_seed(spec.seed + spec.repeat)
    with device:
        model = build_model(spec, data.shape, data.classes)
    if device.type != "cpu":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # Not in stubs.
    return model


class TorchSession:
    """Steps on one rank."""

    def __init__(self, spec: RunSpec, data: Data, device: torch.device) -> None:
        refuse_optimizer_step(spec, device)
        self._spec, self._data, self._device = spec, data, device
        self._mesh = mesh = build_mesh(spec, device)
        assert spec.batch is not None
        mine = replica_index(mesh)
        self._shards = shards = Shards(len(data.train), spec, mine)
        steps = steps_of(spec, len(data.train))
        self._total = total = steps * (spec.epochs or 1)
        self._checked, batches = checks(len(data.validation), spec.batch, mine, spec.replicas)
        self._feed = BatchLoader(data, PassSampler(shards, batches, spec, total), spec, device)
        self._feed.start(Pass(0))  # While the model is built and compiled.
        model = initial_model(spec, data, device)
        flops, uncounted = None, ""
        if dist.get_rank() == 0:
            flops, uncounted = flops_per_sample(model, data.shape, spec.batch)
        model = apply_precision(convert_sync_batchnorm(model, spec, device), spec)
        parameters = sum(each.numel() for each in model.parameters())
        strategy = plugins.load("strategies", spec.strategy, framework=spec.framework)
        task = Task(model, optimizer_factory(spec), data.skips)
        self._parallel: Parallel = strategy(task, mesh, spec, **options_for(strategy, spec))
        self._model = self._parallel.model
        self._copies = spec.replicas * spec.degrees.tensor
        """Ranks that see the output of a step."""
        self._validation = len(data.validation)
        self._epoch, self._step = 0, 0
        self._losses: list[Tensor] = []
        self._stacked: list[Tensor] = []
        self._place = rank_in_replica(mesh)
        self._sharers = spec.degrees.tensor * spec.degrees.pipeline
        self._plan = [(sum(shards.counts(n)), shards.weights(n)) for n in range(shards.steps)]
        """Samples of this replica and weights of each step of an epoch."""
        self._rates = Rates.of(spec, shards.steps, total)
        ours = not self._parallel.complete
        self._scaler = LossScaler() if spec.precision == "fp16" and ours else None
        self._clip = spec.clip if ours else None
        self._taken = 0
        self._held: dict[str, int] | None = None
        self._average = EMA(self._model, spec.ema) if spec.ema else None
        self._checkpoints: Checkpoints | None = None
        self._damaged: list[str] = []
        self._traffic = CollectiveCounter(spec)
        self._waits = SyncTimer(spec, device)
        self._arrivals = GradientTimer(spec, self._model, device)
        self.outline = Outline(
            epochs=spec.epochs,
            steps=steps,
            samples=len(data.train),
            seen=in_steps(steps, [self._counted(samples) for samples, _ in self._plan]),
            together=in_steps(steps, [shards.together(n) for n in range(shards.steps)]),
            parameters=parameters,
            flops=flops,
            uncounted=uncounted,
            validation=len(data.validation),
            rates=str(self._rates),
        )

    def _counted(self, samples: int) -> int:
        """Return this rank's part of a replica's samples, so that each is counted once."""
        return len(range(self._place, samples, self._sharers))

    def left_out(self) -> list[str]:
        """Return the files that this rank was to learn from, or to validate on, and cannot read."""
        return sorted(self._feed.broken)

    def compile(self) -> None:
        """Compile forward and backward on one batch that teaches nothing."""
        inputs, labels = self._data.blank(self._spec.batch or 1)
        inputs = self._feed.finish(inputs.to(self._device))
        labels = labels.to(self._device)
        seen = [(each, each.clone()) for each in self._model.buffers()]
        with torch.random.fork_rng():
            for _ in range(GRAPH_WARMUP_STEPS if self._spec.compile == "graphs" else 1):
                self._parallel.forward_backward(inputs, labels, 1.0, Unwatched(), sync=True)
                self._parallel.optimizer.zero_grad()
        for statistics, before in seen:  # Those of batch norms.
            statistics.copy_(before)

    def begin(self, epoch: int) -> None:
        """Start a pass over the data in a new order."""
        self._losses, self._stacked = [], []
        self._model.train()
        self._pass(epoch)

    def _pass(self, epoch: int, place: int = 0) -> None:
        self._epoch, self._step = epoch, place
        self._feed.begin(Pass(epoch, place))

    def step(self, probe: Laps) -> int:
        """Do one optimizer step, a lap per phase; return this rank's samples."""
        with self._traffic, self._waits.over(probe) as laps:
            return self._one_step(self._arrivals.over(laps))

    def _one_step(self, probe: Laps) -> int:
        if self._step == len(self._plan):
            self._pass(self._epoch + 1)
        samples, weights = self._plan[self._step]
        parallel, last = self._parallel, len(weights) - 1
        scale = self._scaler.scale if self._scaler else 1.0
        total: Tensor | None = None
        if parallel.exchange:
            scale *= parallel.exchange.share
            parallel.exchange.begin(whole=self._shards.whole(self._step))
        for micro, weight in enumerate(weights):
            inputs, labels = self._feed.take()
            if weight:  # Else it is a sample that was only taken along.
                samples -= self._feed.lost
            probe.lap("input")
            loss = parallel.forward_backward(
                inputs, labels, weight * scale, probe, sync=micro == last
            )
            total = loss if total is None else total + loss
            if micro < last:
                self._send_next(probe)
        if parallel.exchange:
            parallel.exchange.end(scale)
        self._learn(parallel.optimizer)
        probe.lap("optimizer")
        self._send_next(probe)
        assert total is not None
        self._losses.append(total if scale == 1.0 else total / scale)
        if len(self._losses) == LOSSES_PER_STACK:
            self._stack()
        self._step += 1
        return self._counted(samples)

    def _learn(self, optimizer: Optimizer) -> None:
        """Do the optimizer's step, at the rate of this step, if its gradients are numbers."""
        if not self._rates.constant:
            for group in optimizer.param_groups:
                group["lr"] = self._rates.at(self._taken)
        self._taken += 1
        fine = True
        if self._scaler:
            fine = self._scaler.unscale(optimizer_parameters(optimizer))
            self._scaler.update(fine=fine)
            if not fine and dist.get_rank() == 0:
                scale = f"the scale is now {self._scaler.scale:g}"
                say(f"step {self._taken} is left out: its gradients overflowed; {scale}")
        if fine:
            if self._clip is not None:
                clip_gradients(optimizer_parameters(optimizer), self._clip, self._mesh)
            optimizer.step()
            if self._average:
                self._average.update()
        if self._held is None:
            self._held = state_bytes(optimizer)
        optimizer.zero_grad()

    def _stack(self) -> None:
        """Put the single losses into one tensor: a million small ones would fill the memory."""
        self._stacked.append(torch.stack(self._losses).float())
        self._losses = []

    def _send_next(self, probe: Laps) -> None:
        """Have the next batch travel while the device does what it was told to."""
        if self._feed.ahead():
            probe.lap("input")

    def settle(self) -> None:
        """Wait until the device has done what it was asked."""
        devices.settle(self._device)

    def losses(self) -> list[float]:
        """Return the loss of each step since ``begin``, averaged over all ranks."""
        if self._losses:
            self._stack()
        if not self._stacked:
            return []
        mine = torch.cat(self._stacked)
        dist.all_reduce(mine)
        return [round(loss, 9) for loss in (mine / self._copies).tolist()]

    def validate(self) -> Quality | None:
        """Return the quality now, each validation sample counted once."""
        with self._to_show(), eager_mode():
            return self._validate()

    def _to_show(self) -> AbstractContextManager[None]:
        """Put the average of the weights in their place, where there is one."""
        return self._average.in_place() if self._average else nullcontext()

    @torch.no_grad()
    def _validate(self) -> Quality | None:
        self._model.eval()
        sums = torch.zeros(4, dtype=torch.float64, device=self._device)
        evaluate = self._parallel.evaluate or (lambda inputs, labels: self._model(inputs))
        self._feed.begin(Pass(self._epoch, checks=True))
        for count in self._checked:
            inputs, labels = self._feed.take()
            output = evaluate(inputs, labels)
            if output is not None:
                sums += _score(output[:count], labels[:count])
        dist.all_reduce(sums)
        right, loss, places, expected = sums.tolist()
        if not places:
            if dist.get_rank() == 0:
                say("validation     says nothing: none of its samples can be read")
            return None
        samples = round(self._validation * places / expected)
        return Quality(accuracy=right / places, loss=loss / places, samples=samples)

    def close(self) -> None:
        """Let go of whoever loads data."""
        self._feed.close()

    def memory(self) -> int:
        """Return the peak bytes this rank has held."""
        return devices.peak_memory(self._device)

    def held(self) -> dict[str, int] | None:
        """Return the bytes of this rank's parameters, gradients and optimizer state."""
        return self._held

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Return the largest of each number over all ranks."""
        box = torch.tensor(numbers, device=self._device)
        dist.all_reduce(box, dist.ReduceOp.MAX)
        return [int(number) for number in box.tolist()]

    def store(self, folder: Path) -> str:
        """Begin to write a checkpoint into a folder of them; return what was wrong before."""
        return self._keeper(folder).write(self._state(), self._progress())

    def stored(self) -> str:
        """Wait until the last checkpoint is whole; return what was wrong with it, if anything."""
        return self._checkpoints.wait() if self._checkpoints else ""

    def restore(self, folder: Path, tick: Callable[[], None]) -> int:
        """Go on from the newest whole checkpoint in a folder; return how many steps are done."""
        spec = self._spec
        keeper = self._keeper(folder)
        path, damaged = keeper.latest(tick)
        if path is None and spec.resume:
            path, others = keeper.newest_whole(
                checkpoints.candidates(Path(spec.resume).expanduser()), tick
            )
            if path is None:
                raise checkpoints.none_whole(others)
            damaged |= others
        self._damaged = checkpoints.describe_damage(damaged, path)
        return self._go_on(keeper, path) if path else 0

    def damaged(self) -> Sequence[str]:
        """Return a sentence for each damaged checkpoint that was passed over."""
        return self._damaged

    def _keeper(self, folder: Path) -> "Checkpoints":
        from scalewise.frameworks.torch.checkpoint.checkpoint_files import Checkpoints

        if self._checkpoints is None:
            self._checkpoints = Checkpoints(folder, self._spec.checkpoint_keep)
        return self._checkpoints

    def _state(self) -> dict[str, Tensor]:
        """Return every tensor that going on needs: the model's, and this rank's own."""
        from scalewise.frameworks.torch.checkpoint import checkpoint_files

        if self._losses:
            self._stack()
        mine = {self._own("losses"): torch.cat(self._stacked)} if self._stacked else {}
        return {
            **checkpoint_files.model_state(self._model),
            **checkpoint_files.optimizer_state(self._model, self._parallel.optimizer),
            **(self._average.state if self._average else {}),
            **checkpoint_files.rng_state(self._device),
            **mine,
        }

    def _own(self, name: str) -> str:
        return f"ranks.{dist.get_rank()}.{name}"

    def _progress(self) -> Progress:
        spec = self._spec
        return Progress(
            step=self._taken,
            epoch=self._epoch,
            place=self._step,
            global_batch=spec.global_batch,
            layout=checkpoints.layout_of(spec),
            workload=str(spec.workload),
            options=options_for(workload(spec), spec),
            optimizer=spec.optimizer,
            scaler=self._scaler.state() if self._scaler else None,
        )

    def _go_on(self, keeper: "Checkpoints", path: Path) -> int:
        """Take up the training of a checkpoint; return how many steps are done.

        Chance and losses are each rank's own: elsewhere they begin anew.
        """
        from scalewise.frameworks.torch.checkpoint import checkpoint_files

        spec, there = self._spec, checkpoints.read_progress(path)
        shapes = checkpoint_files.tensor_metadata(path)
        checkpoint_files.refuse_another_model(path, self._model, shapes)
        same = there.layout == checkpoints.layout_of(spec)
        own = [name for name in shapes if same and name.startswith(self._own(""))]
        state = {
            **checkpoint_files.model_state(self._model),
            **checkpoint_files.allocate_optimizer_state(
                self._model, self._parallel.optimizer, shapes
            ),
            **self._averaged(shapes),
            **checkpoint_files.empty_tensors(own, shapes),
        }
        keeper.read(path, state)
        self._taken, place = there.done(spec, len(self._plan))
        if self._scaler and there.scaler:
            self._scaler.restore(there.scaler)
        self._model.train()
        self._epoch, self._step = there.epoch, place
        self._feed.go_on(Pass(there.epoch, place), self._total - self._taken)
        if same:
            losses = state.get(self._own("losses"))
            self._stacked = [] if losses is None else [losses.to(self._device)]
            checkpoint_files.set_rng_state(state, self._device)
        return self._taken

    def exchanged(self) -> dict[str, Any]:
        """Return what was seen of gradients: when they came, their compression, and their noise."""
        found = {"arrivals": self._arrivals.found()}
        exchange = self._parallel.exchange
        if exchange is None:
            return found
        return {**found, "compression": exchange.compression(), "noise": exchange.noise()}

    def traffic(self) -> dict[str, Any] | None:
        """Return what this rank exchanged in the step that was counted."""
        alone = self._spec.topology.world == 1
        return self._traffic.found if alone or not self._parallel.unseen else None

    @property
    def taken(self) -> int:
        """How many optimizer steps are done."""
        return self._taken

    @property
    def due(self) -> int:
        """This rank's samples in the step that it is in, or that comes next."""
        return self._counted(self._plan[self._step % len(self._plan)][0])

    def on(self, spec: RunSpec) -> "TorchSession":
        """Return a session on the same data for other ranks, which has yet to take over."""
        return TorchSession(spec, self._data, self._device)

    def carried(self) -> dict[str, Any]:
        """Return what another session needs to go on from here."""
        return {
            "model": self._model.state_dict(),
            "optimizer": self._parallel.optimizer.state_dict(),
            "taken": self._taken,
        }

    def take_over(self, carried: Mapping[str, Any]) -> None:
        """Go on after the steps of another session, where these ranks would be in the data."""
        self._model.load_state_dict(carried["model"])
        self._parallel.optimizer.load_state_dict(carried["optimizer"])
        self._taken = carried["taken"]
        self._model.train()
        self._pass(*divmod(self._taken, len(self._plan)))

    def _averaged(self, shapes: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the average to be filled, if the checkpoint has one; else it begins here."""
        state = self._average.state if self._average else {}
        return {name: each for name, each in state.items() if name in shapes}

    def save(self, path: Path) -> None:
        """Write the weights once, under the serial model's own names."""
        with self._to_show(), self._parallel.gathered():
            weights = gather_weights(self._model, self._mesh)
            if weights is not None:
                draft = path.with_suffix(".part")
                torch.save(weights, draft)
                os.replace(draft, path)
        dist.barrier()


def _score(output: Tensor, labels: Tensor) -> Tensor:
    """Return how many places are right, the sum of losses, how many places count, and all."""
    right = (output.argmax(-1) == labels).sum()
    loss = cross_entropy(output.float().flatten(0, -2), labels.flatten(), reduction="sum")
    places = (labels != IGNORED_LABEL).sum()
    every = torch.full_like(places, labels.numel())
    return torch.stack([each.double() for each in (right, loss, places, every)])
