"""Write and read checkpoints while training goes on, with PyTorch's distributed ones.

Everything is kept under the serial model's own names, so that a checkpoint can
be read on any number of devices and with any strategy. Each rank writes what it
holds; what several hold, the first of them writes.
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
from scalewise.frameworks.torch.checkpoint.safe_load import (
    CheckpointReader,
    as_record_error,
    first_failure,
)
from scalewise.frameworks.torch.checkpoint.weights import local_stages
from scalewise.record import checkpoints
from scalewise.record.checkpoints import Progress

Tensors = dict[str, Tensor]


class Checkpoints:
    """The checkpoints of one run, written one at a time beside the training."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep
        # Written beside the training: its messages must not meet those of a step.
        self._group = dist.new_group(backend="gloo")
        self._writing: Future[Any] | None = None
        self._name = ""

    def latest(self, tick: Callable[[], None]) -> tuple[Path | None, dict[Path, str]]:
        """Return the run's newest whole checkpoint, and what is wrong with newer ones.

        Those are set aside; what is left of unfinished ones is removed.
        """
        path, damaged = self.newest_whole(checkpoints.written(self._folder), tick)
        if dist.get_rank() == 0:
            for each in damaged:
                checkpoints.set_aside(each)
            checkpoints.clear(self._folder, self._keep, needed=path)
        return path, damaged

    def newest_whole(
        self, candidates: Sequence[Path], tick: Callable[[], None]
    ) -> tuple[Path | None, dict[Path, str]]:
        """Return the newest whole one of some checkpoints, and what is wrong with newer ones.

        All ranks agree: those that rank 0 names count, and each rank reads its share of the files.
        """
        names = [list(candidates)]
        dist.broadcast_object_list(names, group=self._group)
        damaged: dict[Path, str] = {}
        for path in reversed(names[0]):
            problem = self._damage(path, tick)
            if not problem:
                return path, damaged
            damaged[path] = problem
        return None, damaged

    def _damage(self, path: Path, tick: Callable[[], None]) -> str:
        rank, world = dist.get_rank(), dist.get_world_size()
        problem = [checkpoints.resume_damage(path) if rank == 0 else ""]
        dist.broadcast_object_list(problem, group=self._group)
        if problem[0]:
            return problem[0]
        problems = [""] * world
        mine = checkpoints.content_damage(path, rank, world, tick)
        dist.all_gather_object(problems, mine, group=self._group)
        return next(filter(None, problems), "")

    def write(self, state: Tensors, progress: Progress) -> str:
        """Begin to write a checkpoint; return what was wrong with the one before."""
        problem = self.wait()
        self._name = checkpoints.name_of(progress.step)
        path = self._folder / self._name
        if dist.get_rank() == 0:
            shutil.rmtree(path, ignore_errors=True)
            checkpoints.write_progress(path, progress)
        answer: Any = async_save(
            {name: _copied(each) for name, each in state.items()},
            storage_writer=ChecksumWriter(path),
            planner=DefaultSavePlanner(dedup_save_to_lowest_rank=True),
            process_group=self._group,
        )
        self._writing = answer
        return problem

    def wait(self) -> str:
        """Wait until the last checkpoint is whole; return what was wrong with it, if anything."""
        if self._writing is None:
            return ""
        writing, self._writing = self._writing, None
        try:
            writing.result()
        except (Exception, CheckpointException) as problem:
            return f"checkpoint {self._name} could not be written: {_first_line(problem)}"
        if dist.get_rank() == 0:
            checkpoints.clear(self._folder, self._keep)
        return ""

    def read(self, path: Path, state: Tensors) -> None:
        """Fill tensors with what a checkpoint has of them."""
        with as_record_error(path):
            load(state, storage_reader=CheckpointReader(path), process_group=self._group)


class ChecksumWriter(FileSystemWriter):
    """Writes a distributed checkpoint, and last the checksums of its files.

    Each rank reads back what it wrote, most of it from the system's cache; rank 0 gathers.
    """

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> TorchFuture[Any]:
        """Write this rank's tensors; give the checksums of its files along with the results."""
        results = super().write_data(plan, planner).value()
        files = Path(self.path).glob(f"{plan.storage_data.prefix}*")
        done: TorchFuture[Any] = TorchFuture()
        done.set_result((results, {path.name: checkpoints.checksum(path) for path in files}))
        return done

    def finish(self, metadata: Metadata, results: list[Any]) -> None:
        """Write what rank 0 has of all ranks."""
        super().finish(metadata, [written for written, _ in results])
        files = {name: each for _, checksums in results for name, each in checksums.items()}
        checkpoints.write_checksums(Path(self.path), files)


def model_state(model: nn.Module) -> Tensors:
    """Return what this rank holds of a model."""
    return {
        f"model.{name}": value
        for stage in local_stages(model)
        for name, value in stage.state_dict().items()
    }


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> Tensors:
    """Return what this rank's optimizer remembers of the parameters."""
    inner = _inner(optimizer)
    return {
        f"optimizer.{name}.{key}": value
        for name, parameter in _learned(model, inner)
        for key, value in inner.state[parameter].items()
        if isinstance(value, Tensor)
    }


def allocate_optimizer_state(
    model: nn.Module, optimizer: Optimizer, shapes: dict[str, Any]
) -> Tensors:
    """Make this rank's optimizer remember as much as a checkpoint does; return its tensors."""
    inner = _inner(optimizer)
    for name, parameter in _learned(model, inner):
        before = f"optimizer.{name}."
        for key in [key for key in shapes if key.startswith(before)]:
            inner.state[parameter][key[len(before) :]] = _like(parameter, shapes[key], inner)
    return optimizer_state(model, optimizer)


def tensor_metadata(path: Path) -> dict[str, TensorStorageMetadata]:
    """Return what a checkpoint says of its tensors, by their names."""
    found = CheckpointReader(path).read_metadata().state_dict_metadata
    return {key: each for key, each in found.items() if isinstance(each, TensorStorageMetadata)}


def refuse_another_model(path: Path, model: nn.Module, shapes: dict[str, Any]) -> None:
    """Refuse a checkpoint whose tensors are not those of the model."""
    for name, mine in model_state(model).items():
        there = shapes.get(name)
        if there is None or there.size != mine.shape:
            what = "is not in it" if there is None else f"has the shape {list(there.size)} in it"
            raise SpecError(
                f"{path} is of another model: {name.partition('.')[2]} {what}, "
                f"and {list(mine.shape)} here",
                hint="go on with the same workload, options and data, or leave resume out",
            )


def rng_state(device: torch.device) -> Tensors:
    """Return where this rank's random numbers stand."""
    mine = f"ranks.{dist.get_rank()}.chance"
    state = {mine: torch.get_rng_state()}
    if device.type == "cuda":
        state[f"{mine}.cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(state: Tensors, device: torch.device) -> None:
    """Go on with the random numbers that a checkpoint had of this rank."""
    mine = f"ranks.{dist.get_rank()}.chance"
    torch.set_rng_state(state[mine])
    if f"{mine}.cuda" in state:
        torch.cuda.set_rng_state(state[f"{mine}.cuda"], device)


def empty_tensors(names: Iterable[str], shapes: dict[str, TensorStorageMetadata]) -> Tensors:
    """Return tensors to be filled with those of a checkpoint."""
    return {
        name: torch.empty(shapes[name].size, dtype=shapes[name].properties.dtype)
        for name in names
        if name in shapes
    }


def serial_weights(path: Path) -> Tensors:
    """Return the whole model of a checkpoint, in one process; its average, if it has one."""
    if problem := checkpoints.size_damage(path) or checkpoints.content_damage(path):
        raise RecordError(f"{path} is damaged: {problem}", hint=_hint_at_older(path))
    shapes = tensor_metadata(path)
    wanted = [name for name in shapes if name.startswith(("model.", "average."))]
    with as_record_error(path):
        state = empty_tensors(wanted, shapes)
        load(state, storage_reader=CheckpointReader(path), no_dist=True)
    found: Tensors = {}
    for kind in ("model.", "average."):
        found |= {k.removeprefix(kind): each for k, each in state.items() if k.startswith(kind)}
    return found


def _hint_at_older(path: Path) -> str:
    older = [other for other in checkpoints.whole(path.parent) if other.name < path.name]
    if not older:
        return "there is no older one beside it"
    return f"--step {checkpoints.step_of(older[-1])} takes an older one"


def _learned(model: nn.Module, inner: Any) -> list[tuple[str, Tensor]]:
    """Return the parameters that this rank's own optimizer updates, with their names."""
    mine = {id(each) for group in inner.param_groups for each in group["params"]}
    return [
        (name, each)
        for stage in local_stages(model)
        for name, each in stage.named_parameters()
        if id(each) in mine
    ]


def _inner(optimizer: Optimizer) -> Any:
    return getattr(optimizer, "optim", optimizer)  # ZeRO keeps its part in another one.


def _like(parameter: Tensor, shape: TensorStorageMetadata, inner: Any) -> Tensor:
    """Return room for a tensor: one of a parameter's shape is spread like it."""
    if shape.size == parameter.shape:
        return torch.zeros_like(parameter, dtype=shape.properties.dtype)
    on_device = any(group.get("fused") or group.get("capturable") for group in inner.param_groups)
    device = parameter.device if on_device else "cpu"
    return torch.zeros(shape.size, dtype=shape.properties.dtype, device=device)


def _copied(tensor: Tensor) -> Tensor:
    """Return a tensor that training does not change while it is written."""
    return tensor.detach().clone() if tensor.device.type == "cpu" else tensor.detach()


def _first_line(problem: BaseException) -> str:
    failure = first_failure(problem)
    return (str(failure).strip().splitlines() or [type(failure).__name__])[0]
