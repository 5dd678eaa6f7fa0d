"""Write distributed checkpoints (torch.distributed.checkpoint) in the background, and read them.

Tensors have the names of the serial model (not parallel): runs with other devices and strategies
can read them. Of the ranks that hold the same tensor, only the lowest writes it.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.futures import Future as TorchFuture
from torch.optim import Optimizer

from scalewise.errors import RecordError, SpecError
from scalewise.frameworks.torch.checkpoint.local_state import (
    local_optimizer,
    local_stages,
    optimizer_parameters,
)
from scalewise.frameworks.torch.checkpoint.safe_load import (
    CheckpointReader,
    as_record_error,
    first_failure,
)
from scalewise.record import checkpoints
from scalewise.record.checkpoints import Progress

Tensors = dict[str, Tensor]


class Checkpoints:
    """The checkpoints of one run, written one at a time in the background."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep
        # A separate group: collectives of the writer must not mix with those of a step.
        self._group = dist.new_group(backend="gloo")
        self._writing: Future[Any] | None = None
        self._written_name = ""

    def latest(self, tick: Callable[[], None]) -> tuple[Path | None, dict[Path, str]]:
        """Return the run's newest complete checkpoint, and the problem of each newer, damaged one.

        Damaged checkpoints are renamed, unfinished ones removed. Reading calls ``tick`` repeatedly.
        """
        path, damaged = self.newest_complete(checkpoints.written(self._folder), tick)
        if dist.get_rank() == 0:
            for damaged_path in damaged:
                checkpoints.set_aside(damaged_path)
            checkpoints.remove_old(self._folder, self._keep, needed=path)
        return path, damaged

    def newest_complete(
        self, candidates: Sequence[Path], tick: Callable[[], None]
    ) -> tuple[Path | None, dict[Path, str]]:
        """Return the newest complete candidate, and the problem of each newer one.

        All ranks return the same: they use rank 0's candidates, and share the check of the files.
        """
        shared_candidates = [list(candidates)]
        dist.broadcast_object_list(shared_candidates, group=self._group)
        damaged: dict[Path, str] = {}
        rank, world = dist.get_rank(), dist.get_world_size()
        for path in reversed(shared_candidates[0]):
            problems = [checkpoints.resume_damage(path) if rank == 0 else ""]
            dist.broadcast_object_list(problems, group=self._group)
            if not problems[0]:
                problems = [""] * world
                own_problem = checkpoints.content_damage(path, rank, world, tick)
                dist.all_gather_object(problems, own_problem, group=self._group)
            if not any(problems):
                return path, damaged
            damaged[path] = next(filter(None, problems))
        return None, damaged

    def write(self, state: Tensors, progress: Progress) -> str:
        """Start to write a checkpoint; return why the previous one failed, or an empty string."""
        problem = self.wait()
        self._written_name = checkpoints.name_of(progress.step)
        path = self._folder / self._written_name
        if dist.get_rank() == 0:
            shutil.rmtree(path, ignore_errors=True)
            checkpoints.write_progress(path, progress)
        # Training goes on while copies are written; async_save itself copies from accelerators.
        copies = {
            name: tensor.detach().clone() if tensor.device.type == "cpu" else tensor.detach()
            for name, tensor in state.items()
        }
        writing: Any = async_save(
            copies,
            storage_writer=ChecksumWriter(path),
            planner=DefaultSavePlanner(dedup_save_to_lowest_rank=True),
            process_group=self._group,
        )
        self._writing = writing
        return problem

    def wait(self) -> str:
        """Wait until the last checkpoint is complete; return why it failed, or an empty string."""
        if self._writing is None:
            return ""
        writing, self._writing = self._writing, None
        try:
            writing.result()
        except (Exception, CheckpointException) as problem:
            failure = first_failure(problem)
            reason = (str(failure).strip().splitlines() or [type(failure).__name__])[0]
            return f"checkpoint {self._written_name} could not be written: {reason}"
        if dist.get_rank() == 0:
            checkpoints.remove_old(self._folder, self._keep)
        return ""

    def read(self, path: Path, state: Tensors) -> None:
        """Fill tensors with the values in a checkpoint."""
        with as_record_error(path):
            load(state, storage_reader=CheckpointReader(path), process_group=self._group)


class ChecksumWriter(FileSystemWriter):
    """Writes a distributed checkpoint and checksums, for which each rank reads its files again."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> TorchFuture[Any]:
        """Write this rank's tensors; return the results with the checksums of its files."""
        results = super().write_data(plan, planner).value()
        files = Path(self.path).glob(f"{plan.storage_data.prefix}*")
        done: TorchFuture[Any] = TorchFuture()
        done.set_result((results, {path.name: checkpoints.checksum(path) for path in files}))
        return done

    def finish(self, metadata: Metadata, results: list[Any]) -> None:
        """Write the metadata, and the checksums of all ranks' files; called on rank 0."""
        super().finish(metadata, [written for written, _ in results])
        checksums = {name: checksum for _, files in results for name, checksum in files.items()}
        checkpoints.write_checksums(Path(self.path), checksums)


def model_state(model: nn.Module) -> Tensors:
    """Return the model tensors that this rank holds."""
    return {
        f"model.{name}": value
        for stage in local_stages(model)
        for name, value in stage.state_dict().items()
    }


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> Tensors:
    """Return the state tensors of this rank's optimizer."""
    local = local_optimizer(optimizer)
    return {
        f"optimizer.{name}.{key}": value
        for name, parameter in _updated_parameters(model, local)
        for key, value in local.state[parameter].items()
        if isinstance(value, Tensor)
    }


def allocate_optimizer_state(
    model: nn.Module, optimizer: Optimizer, saved: dict[str, Any]
) -> Tensors:
    """Allocate this rank's optimizer state as in a checkpoint; return its tensors, to be filled."""
    local = local_optimizer(optimizer)
    # Step counters are on the CPU, but fused and capturable optimizers keep them on the device.
    on_device = any(group.get("fused") or group.get("capturable") for group in local.param_groups)
    for name, parameter in _updated_parameters(model, local):
        prefix = f"optimizer.{name}."
        for key in [key for key in saved if key.startswith(prefix)]:
            size, dtype = saved[key].size, saved[key].properties.dtype
            device = parameter.device if on_device else "cpu"
            local.state[parameter][key.removeprefix(prefix)] = (
                torch.zeros_like(parameter, dtype=dtype)  # Distributed like the parameter.
                if size == parameter.shape
                else torch.zeros(size, dtype=dtype, device=device)
            )
    return optimizer_state(model, optimizer)


def tensor_metadata(path: Path) -> dict[str, TensorStorageMetadata]:
    """Return shape and dtype of the tensors in a checkpoint, by name."""
    entries = CheckpointReader(path).read_metadata().state_dict_metadata
    return {k: entry for k, entry in entries.items() if isinstance(entry, TensorStorageMetadata)}


def refuse_another_model(path: Path, model: nn.Module, saved: dict[str, Any]) -> None:
    """Refuse a checkpoint whose tensors are not those of the model."""
    for name, tensor in model_state(model).items():
        entry = saved.get(name)
        if entry is None or entry.size != tensor.shape:
            problem = "is missing" if entry is None else f"has the shape {list(entry.size)}"
            raise SpecError(
                f"{path} is of another model: {name.partition('.')[2]} {problem} in it, "
                f"and this run needs the shape {list(tensor.shape)}",
                hint="continue with the same workload, options and data, or leave resume out",
            )


def rng_state(device: torch.device) -> Tensors:
    """Return the state of this rank's random number generators."""
    key = f"ranks.{dist.get_rank()}.chance"  # A name in files: do not change it.
    on_cuda = device.type == "cuda"
    cuda_state = {f"{key}.cuda": torch.cuda.get_rng_state(device)} if on_cuda else {}
    return {key: torch.get_rng_state(), **cuda_state}


def set_rng_state(state: Tensors, device: torch.device) -> None:
    """Restore this rank's random number generators from a checkpoint."""
    key = f"ranks.{dist.get_rank()}.chance"
    torch.set_rng_state(state[key])
    if f"{key}.cuda" in state:
        torch.cuda.set_rng_state(state[f"{key}.cuda"], device)


def empty_tensors(names: Iterable[str], saved: dict[str, TensorStorageMetadata]) -> Tensors:
    """Return uninitialized tensors, to be filled from a checkpoint."""
    return {n: torch.empty(saved[n].size, dtype=saved[n].properties.dtype) for n in names}


def serial_weights(path: Path) -> Tensors:
    """Read a checkpoint in one process; return its full weights, or their EMA if it has one."""
    if problem := checkpoints.size_damage(path) or checkpoints.content_damage(path):
        older = [other for other in checkpoints.complete(path.parent) if other.name < path.name]
        hint = "there is no older one beside it"
        if older:
            hint = f"--step {checkpoints.step_of(older[-1])} takes an older one"
        raise RecordError(f"{path} is damaged: {problem}", hint=hint)
    saved = tensor_metadata(path)
    names = [name for name in saved if name.startswith(("model.", "average."))]
    with as_record_error(path):
        state = empty_tensors(names, saved)
        load(state, storage_reader=CheckpointReader(path), no_dist=True)
    weights: Tensors = {}
    for prefix in ("model.", "average."):  # An EMA ("average.") replaces the weights.
        weights |= {
            name.removeprefix(prefix): tensor
            for name, tensor in state.items()
            if name.startswith(prefix)
        }
    return weights


def _updated_parameters(model: nn.Module, local: Any) -> list[tuple[str, Tensor]]:
    """Return names and values of the parameters that this rank's optimizer updates."""
    updated = {id(parameter) for parameter in optimizer_parameters(local)}
    return [
        (name, parameter)
        for stage in local_stages(model)
        for name, parameter in stage.named_parameters()
        if id(parameter) in updated
    ]
