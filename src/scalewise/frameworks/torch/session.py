"""Training on one rank: steps, validation, checkpoints."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from scalewise import plugins
from scalewise.frameworks import Outline, Quality
from scalewise.frameworks.lr_schedule import Rates
from scalewise.frameworks.part_options import options_for
from scalewise.frameworks.sampler import Shards, count_steps, samples_in_steps, validation_batches
from scalewise.frameworks.torch import workload_factory
from scalewise.frameworks.torch.checkpoint.ema import EMA
from scalewise.frameworks.torch.checkpoint.local_state import optimizer_parameters, state_bytes
from scalewise.frameworks.torch.checkpoint.weights import gather_weights
from scalewise.frameworks.torch.input.batches import IGNORED_LABEL
from scalewise.frameworks.torch.input.data_sets import Data
from scalewise.frameworks.torch.input.loader import BatchLoader, Pass, PassSampler
from scalewise.frameworks.torch.models.block_compile import GRAPH_WARMUP_STEPS, eager_mode
from scalewise.frameworks.torch.parallel.batchnorm import convert_sync_batchnorm, share_statistics
from scalewise.frameworks.torch.parallel.gradient_exchange import clip_gradients
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
from scalewise.frameworks.train_log import say
from scalewise.probe import Laps, Unwatched
from scalewise.probe.torch import device as devices
from scalewise.probe.torch.sync_timer import SyncTimer
from scalewise.record import checkpoints
from scalewise.record.checkpoints import Progress
from scalewise.spec import RunSpec

if TYPE_CHECKING:  # torch.distributed.checkpoint takes a second to import.
    from scalewise.frameworks.torch.checkpoint.checkpoint_files import Checkpoints

LOSSES_PER_STACK = 1000
"""Losses are kept as single tensors on the device; this many are then stacked to one tensor."""


def initial_model(spec: RunSpec, data: Data, device: torch.device) -> nn.Module:
    """Return the run's model on the device, with random weights drawn at the run's seed.

    The same seed gives other weights on a GPU than on a CPU: a GPU draws them itself (faster).
    """
    torch.manual_seed(spec.seed + spec.repeat)
    with device:
        model = build_model(spec, data.shape, data.classes)
    if device.type != "cpu":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # Not in stubs.
    return model


class TorchSession:
    """A training run in progress, seen from one rank. ``frameworks.Session`` describes the methods
    without a docstring. Only ``horovod.elastic`` uses those from ``steps_done`` to ``take_over``.
    """

    def __init__(self, spec: RunSpec, data: Data, device: torch.device) -> None:
        refuse_optimizer_step(spec, device)
        self._spec, self._data, self._device = spec, data, device
        self._mesh = mesh = build_mesh(spec, device)
        assert spec.batch is not None
        replica, train_samples = replica_index(mesh), len(data.train)
        self._shards = shards = Shards(train_samples, spec, replica)
        steps = count_steps(spec, train_samples)  # Of an epoch; of the run, if it has no epochs.
        self._total_steps = total_steps = steps * (spec.epochs or 1)
        self._validation_counts, validation_indices = validation_batches(
            len(data.validation), spec.batch, replica, spec.replicas
        )
        sampler = PassSampler(shards, validation_indices, spec, total_steps)
        self._loader = BatchLoader(data, sampler, spec, device)
        self._loader.restart(Pass(0))  # Workers load while the model is built and compiled.
        model = initial_model(spec, data, device)
        flops, uncounted_reason = None, ""
        if dist.get_rank() == 0:
            flops, uncounted_reason = flops_per_sample(model, data.shape, spec.batch)
        model = apply_precision(convert_sync_batchnorm(model, spec, device), spec)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        strategy = plugins.load("strategies", spec.strategy, framework=spec.framework)
        task = Task(model, optimizer_factory(spec), data.may_ignore_labels)
        self._parallel: Parallel = strategy(task, mesh, spec, **options_for(strategy, spec))
        self._model = self._parallel.model
        self._loss_ranks = spec.replicas * spec.degrees.tensor
        """The number of ranks that compute the loss: in a pipeline, those of the last stage."""
        self._epoch, self._step = 0, 0
        """The current epoch, and the next step in it; ``_steps_done`` counts over all epochs."""
        self._losses: list[Tensor] = []
        """The newest losses, one tensor each; older ones are in ``_loss_stacks``."""
        self._loss_stacks: list[Tensor] = []
        self._rank_in_replica = rank_in_replica(mesh)
        self._ranks_per_replica = spec.degrees.tensor * spec.degrees.pipeline
        self._plan = [(sum(shards.counts(n)), shards.weights(n)) for n in range(shards.steps)]
        """For each step of an epoch: this replica's samples, and the weight of each micro-step."""
        self._learning_rates = Rates.of(spec, shards.steps, total_steps)
        # DeepSpeed's optimizer step scales the loss and clips gradients itself.
        must_scale_and_clip = not self._parallel.scales_and_clips
        self._scaler = LossScaler() if spec.precision == "fp16" and must_scale_and_clip else None
        self._max_norm = spec.clip if must_scale_and_clip else None
        self._steps_done = 0
        self._is_set_up = False
        """Whether blank steps were run."""
        self._state_bytes: dict[str, int] | None = None
        self._ema = EMA(self._model, spec.ema) if spec.ema else None
        self._checkpoints: Checkpoints | None = None
        self._damage_reports: list[str] = []
        self._collectives = CollectiveCounter(spec)
        self._sync_timer = SyncTimer(spec, device)
        self._gradient_timer = GradientTimer(spec, self._model, device)
        self.outline = Outline(
            epochs=spec.epochs,
            steps=steps,
            samples=train_samples,
            seen=samples_in_steps(steps, [self._rank_share(count) for count, _ in self._plan]),
            together=samples_in_steps(steps, [*map(shards.global_samples, range(shards.steps))]),
            parameters=parameters,
            flops=flops,
            uncounted=uncounted_reason,
            validation=len(data.validation),
            rates=str(self._learning_rates),
        )

    def _rank_share(self, samples: int) -> int:
        """Return how many of its replica's samples this rank reports; each is reported once."""
        return len(range(self._rank_in_replica, samples, self._ranks_per_replica))

    @property
    def parallel(self) -> Parallel:
        """This rank's part of the task."""
        return self._parallel

    @property
    def position(self) -> Pass:
        """The epoch, and the step in it that runs or comes next."""
        return Pass(self._epoch, self._step)

    @property
    def replica(self) -> int:
        """The data-parallel replica of this rank."""
        return replica_index(self._mesh)

    def unreadable_files(self) -> list[str]:
        """Return the files of this rank's samples that cannot be read."""
        return sorted(self._loader.unreadable_files)

    def compile(self) -> None:
        """Compile forward and backward."""
        self._run_blank_steps(GRAPH_WARMUP_STEPS if self._spec.compile == "graphs" else 1)

    def _run_blank_steps(self, count: int) -> None:
        """Run forward and backward on a batch of zeros; weights and random numbers do not change.

        Some parts set themselves up in their first step: compiled models; DDP, which then sums
        gradients in another order; pipelines, which must not validate before.
        """
        if self._is_set_up:
            return
        self._is_set_up = True
        inputs, labels = self._data.blank_batch(self._spec.batch or 1)
        inputs = self._loader.preprocess(inputs.to(self._device))
        labels = labels.to(self._device)
        buffers = [(buffer, buffer.clone()) for buffer in self._model.buffers()]
        with torch.random.fork_rng():
            for _ in range(count):
                self._parallel.forward_backward(inputs, labels, 1.0, Unwatched(), sync=True)
                self._parallel.optimizer.zero_grad()
        for buffer, original in buffers:  # Restore the statistics of batch norms.
            buffer.copy_(original)

    def begin(self, epoch: int) -> None:
        self._losses, self._loss_stacks = [], []
        self._model.train()
        self._begin_pass(epoch)

    def _begin_pass(self, epoch: int, step: int = 0) -> None:
        self._epoch, self._step = epoch, step
        self._loader.begin(Pass(epoch, step))

    def step(self, probe: Laps) -> int:
        with self._collectives, self._sync_timer.passing_to(probe) as laps:
            return self._run_step(self._gradient_timer.wrap(laps))

    def _run_step(self, probe: Laps) -> int:
        if self._step == len(self._plan):  # A run by steps may pass over the data several times.
            self._begin_pass(self._epoch + 1)
        samples, weights = self._plan[self._step]
        parallel = self._parallel
        scale = self._scaler.scale if self._scaler else 1.0  # The factor of the loss.
        loss_sum: Tensor | None = None
        if parallel.exchange:
            scale *= parallel.exchange.loss_factor
            parallel.exchange.begin(is_full=self._shards.is_full(self._step))
        for micro_step, weight in enumerate(weights, 1):
            inputs, labels = self._loader.next_batch()
            if weight:  # A batch of weight 0 is padding: its samples are not in ``samples``.
                samples -= self._loader.skipped_samples
            probe.lap("input")
            is_last = micro_step == len(weights)
            loss = parallel.forward_backward(inputs, labels, weight * scale, probe, sync=is_last)
            loss_sum = loss if loss_sum is None else loss_sum + loss
            if not is_last:
                self._prefetch(probe)
        if parallel.exchange:
            parallel.exchange.end(scale)
        self._update_weights(parallel.optimizer)
        probe.lap("optimizer")
        self._prefetch(probe)
        assert loss_sum is not None
        self._losses.append(loss_sum if scale == 1.0 else loss_sum / scale)
        if len(self._losses) == LOSSES_PER_STACK:
            self._stack_losses()
        self._step += 1
        return self._rank_share(samples)

    def _update_weights(self, optimizer: Optimizer) -> None:
        """Run the optimizer with this step's learning rate, but not if gradients overflowed."""
        if not self._learning_rates.constant:
            for group in optimizer.param_groups:
                group["lr"] = self._learning_rates.at(self._steps_done)
        self._steps_done += 1
        is_finite = True
        if self._scaler:
            is_finite = self._scaler.unscale(optimizer_parameters(optimizer))
            self._scaler.update(is_finite=is_finite)
            if not is_finite and dist.get_rank() == 0:
                scale = f"the loss scale is now {self._scaler.scale:g}"
                say(f"step {self._steps_done} is skipped: its gradients overflowed; {scale}")
        if is_finite:
            if self._max_norm is not None:
                clip_gradients(optimizer_parameters(optimizer), self._max_norm, self._mesh)
            optimizer.step()
            if self._ema:
                self._ema.update()
        if self._state_bytes is None:  # Only now are there gradients and an optimizer state.
            self._state_bytes = state_bytes(optimizer)
        optimizer.zero_grad()

    def _stack_losses(self) -> None:
        """Stack single losses into one tensor: a million small tensors would fill the memory."""
        if self._losses:
            self._loss_stacks.append(torch.stack(self._losses).float())
            self._losses = []

    def _prefetch(self, probe: Laps) -> None:
        """Start to copy the next batch while the device computes."""
        if self._loader.prefetch():
            probe.lap("input")

    def settle(self) -> None:
        devices.settle(self._device)

    def losses(self) -> list[float]:
        self._stack_losses()
        if not self._loss_stacks:
            return []
        losses = torch.cat(self._loss_stacks)
        dist.all_reduce(losses)  # Ranks that do not compute the loss add 0.
        return [round(loss, 9) for loss in (losses / self._loss_ranks).tolist()]

    def _ema_weights(self) -> AbstractContextManager[None]:
        """Use the EMA as the model's weights while entered, if the run has one."""
        return self._ema.swapped_in() if self._ema else nullcontext()

    def validate(self) -> Quality | None:
        share_statistics(self._model, self._mesh)
        with self._ema_weights(), eager_mode(), torch.no_grad():
            return self._validate()

    def _validate(self) -> Quality | None:
        self._model.eval()
        sums = torch.zeros(4, dtype=torch.float64, device=self._device)
        evaluate = self._parallel.evaluate or (lambda inputs, labels: self._model(inputs))
        self._loader.begin(Pass(self._epoch, validation=True))
        for count in self._validation_counts:
            inputs, labels = self._loader.next_batch()
            output = evaluate(inputs, labels)
            if output is not None:
                sums += _score(output[:count], labels[:count])
        dist.all_reduce(sums)
        correct, loss, valid_labels, all_labels = sums.tolist()
        if not valid_labels:
            if dist.get_rank() == 0:
                say("validation     is not possible: none of its samples can be read")
            return None
        # All samples have the same number of labels: one, or one for each sequence position.
        samples = round(len(self._data.validation) * valid_labels / all_labels)
        return Quality(accuracy=correct / valid_labels, loss=loss / valid_labels, samples=samples)

    def close(self) -> None:
        """Stop the loader's workers."""
        self._loader.close()

    def memory(self) -> int:
        return devices.peak_memory(self._device)

    def state_bytes(self) -> dict[str, int] | None:
        return self._state_bytes

    def max_over_ranks(self, numbers: Sequence[int]) -> list[int]:
        tensor = torch.tensor(numbers, device=self._device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return [int(number) for number in tensor.tolist()]

    def store(self, folder: Path) -> str:
        spec = self._spec
        progress = Progress(
            step=self._steps_done,
            epoch=self._epoch,
            place=self._step,
            global_batch=spec.global_batch,
            layout=checkpoints.layout_of(spec),
            workload=str(spec.workload),
            options=options_for(workload_factory(spec), spec),
            optimizer=spec.optimizer,
            scaler=self._scaler.state() if self._scaler else None,
        )
        return self._open_checkpoints(folder).write(self._state(), progress)

    def wait_stored(self) -> str:
        return self._checkpoints.wait() if self._checkpoints else ""

    def restore(self, folder: Path, tick: Callable[[], None]) -> int:
        spec = self._spec
        files = self._open_checkpoints(folder)
        path, damaged = files.latest(tick)
        if path is None and spec.resume:
            candidates = checkpoints.candidates(Path(spec.resume).expanduser())
            path, damaged_candidates = files.newest_complete(candidates, tick)
            if path is None:
                raise checkpoints.all_damaged(damaged_candidates)
            damaged |= damaged_candidates
        self._damage_reports = checkpoints.describe_damage(damaged, path)
        return self._load_checkpoint(files, path) if path else 0

    def damaged(self) -> Sequence[str]:
        return self._damage_reports

    def _open_checkpoints(self, folder: Path) -> "Checkpoints":
        from scalewise.frameworks.torch.checkpoint.checkpoint_files import Checkpoints

        if self._checkpoints is None:
            self._checkpoints = Checkpoints(folder, self._spec.checkpoint_keep)
        return self._checkpoints

    def _state(self) -> dict[str, Tensor]:
        """Return the tensors that are needed to continue: the model's, and this rank's own."""
        from scalewise.frameworks.torch.checkpoint import checkpoint_files

        self._stack_losses()
        stacks = self._loss_stacks
        losses = {self._rank_key("losses"): torch.cat(stacks)} if stacks else {}
        exchange = self._parallel.exchange.state() if self._parallel.exchange else {}
        return {
            **checkpoint_files.model_state(self._model),
            **checkpoint_files.optimizer_state(self._model, self._parallel.optimizer),
            **(self._ema.state if self._ema else {}),
            **checkpoint_files.rng_state(self._device),
            **losses,
            **{self._rank_key(f"exchange.{name}"): value for name, value in exchange.items()},
        }

    def _rank_key(self, name: str) -> str:
        return f"ranks.{dist.get_rank()}.{name}"

    def _load_checkpoint(self, files: "Checkpoints", path: Path) -> int:
        """Load a checkpoint; return the number of steps done. Random states and losses belong to
        a rank: they are loaded only if the checkpoint was written with the same layout of ranks.
        """
        from scalewise.frameworks.torch.checkpoint import checkpoint_files

        spec, progress = self._spec, checkpoints.read_progress(path)
        optimizer = self._parallel.optimizer
        self._run_blank_steps(1)
        saved_tensors = checkpoint_files.tensor_metadata(path)
        checkpoint_files.refuse_another_model(path, self._model, saved_tensors)
        same_layout = checkpoints.has_layout_of(progress, spec)
        prefix = self._rank_key("")
        rank_names = [name for name in saved_tensors if same_layout and name.startswith(prefix)]
        ema = self._ema.state if self._ema else {}
        state = {
            **checkpoint_files.model_state(self._model),
            **checkpoint_files.allocate_optimizer_state(self._model, optimizer, saved_tensors),
            # A checkpoint of a run without an EMA has none of these names.
            **{name: tensor for name, tensor in ema.items() if name in saved_tensors},
            **checkpoint_files.empty_tensors(rank_names, saved_tensors),
        }
        files.read(path, state)
        self._steps_done, step = progress.steps_done(spec, len(self._plan))
        if self._scaler and progress.scaler:
            self._scaler.restore(progress.scaler)
        self._model.train()
        self._epoch, self._step = progress.epoch, step
        self._loader.resume(Pass(progress.epoch, step), self._total_steps - self._steps_done)
        if same_layout:
            losses = state.get(self._rank_key("losses"))
            self._loss_stacks = [] if losses is None else [losses.to(self._device)]
            checkpoint_files.set_rng_state(state, self._device)
            if self._parallel.exchange:
                prefix = self._rank_key("exchange.")
                own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
                self._parallel.exchange.restore(own, self._device)
        return self._steps_done

    def exchange_measurements(self) -> dict[str, Any]:
        arrivals = {"arrivals": self._gradient_timer.arrivals()}
        exchange = self._parallel.exchange
        if exchange is None:
            return arrivals
        return {**arrivals, "compression": exchange.compression(), "noise": exchange.noise()}

    def traffic(self) -> dict[str, Any] | None:
        if self._parallel.has_uncounted_traffic and self._spec.topology.world > 1:
            return None
        return self._collectives.counts

    @property
    def steps_done(self) -> int:
        """The number of optimizer steps done, in all epochs."""
        return self._steps_done

    @property
    def step_samples(self) -> int:
        """This rank's samples in the step that runs or, between two steps, in the next one."""
        return self._rank_share(self._plan[self._step % len(self._plan)][0])

    def with_ranks_of(self, spec: RunSpec) -> "TorchSession":
        """Return a new session for the topology of ``spec``; ``take_over`` loads its state."""
        return TorchSession(spec, self._data, self._device)

    def state_to_transfer(self) -> dict[str, Any]:
        """Return the state that ``take_over`` of another session loads."""
        return {
            "model": self._model.state_dict(),
            "optimizer": self._parallel.optimizer.state_dict(),
            "steps_done": self._steps_done,
        }

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Load the state of another session, and go to its position in the data."""
        self._model.load_state_dict(state["model"])
        self._parallel.optimizer.load_state_dict(state["optimizer"])
        self._steps_done = state["steps_done"]
        self._model.train()
        self._begin_pass(*divmod(self._steps_done, len(self._plan)))

    def save(self, path: Path) -> None:
        with self._ema_weights(), self._parallel.gathered():
            weights = gather_weights(self._model, self._mesh)
            if weights is not None:
                draft = path.with_suffix(".part")
                torch.save(weights, draft)
                os.replace(draft, path)
        dist.barrier()


def _score(output: Tensor, labels: Tensor) -> Tensor:
    """Return four sums: correct predictions, losses, labels that are not ignored, all labels."""
    correct = (output.argmax(-1) == labels).sum()
    loss = cross_entropy(output.float().flatten(0, -2), labels.flatten(), reduction="sum")
    valid = (labels != IGNORED_LABEL).sum()
    total = torch.full_like(valid, labels.numel())
    return torch.stack([value.double() for value in (correct, loss, valid, total)])
