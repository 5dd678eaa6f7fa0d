"""Load tensors and checkpoints from files without running code that is in them.

``torch.load(weights_only=True)`` is not enough: before version 2.6 it runs code of the old tar
format and of TorchScript. Before 2.5, PyTorch does not use ``weights_only`` for distributed
checkpoints, and no version uses it for their ``.metadata``.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from scalewise.errors import RecordError, ScalewiseError
from scalewise.frameworks.pickles import RestrictedUnpickler, describe_failure, one_line
from scalewise.record.checkpoints import METADATA

ZIP_MAGIC = b"PK\x03\x04"
HINT = "no code in it was run; take another checkpoint, or write it again"


def _memory_format(owner: Any, name: Any) -> Any:
    """Stand in for ``getattr``, which some versions of Python pickle to get an enum member."""
    if owner is not dcp._MEM_FORMAT_ENCODING:
        raise ValueError("builtins.getattr is not allowed in it")
    return dcp._MEM_FORMAT_ENCODING[name]


_PATHS = {
    "Path": PurePosixPath, "PosixPath": PurePosixPath, "PurePosixPath": PurePosixPath,
    "WindowsPath": PureWindowsPath, "PureWindowsPath": PureWindowsPath,
}  # fmt: skip
_CLASSES = (
    dcp.Metadata, dcp.MetadataIndex, dcp.StorageMeta, dcp.TensorStorageMetadata,
    dcp.BytesStorageMetadata, dcp.ChunkStorageMetadata, dcp.TensorProperties,
    dcp._MEM_FORMAT_ENCODING, _StorageInfo,
)  # fmt: skip
METADATA_CLASSES: dict[tuple[str, str], Any] = {
    **{(kind.__module__, kind.__qualname__): kind for kind in _CLASSES},
    ("torch", "Size"): torch.Size,
    **{("torch", name): kind for name, kind in vars(torch).items() if type(kind) is torch.dtype},
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    **{(module, name): kind for name, kind in _PATHS.items()
       for module in ("pathlib", "pathlib._local")},
    ("builtins", "getattr"): _memory_format,
}  # fmt: skip
"""Classes and functions that ``.metadata`` of a distributed checkpoint uses since PyTorch 2.4."""


@contextmanager
def as_record_error(path: Path) -> Iterator[None]:
    """Turn any error while ``path`` is read into a RecordError that names the path."""
    try:
        yield
    except (Exception, CheckpointException) as error:  # The latter is not an Exception.
        first = first_failure(error)
        if isinstance(first, ScalewiseError):
            raise RecordError(str(first), hint=first.hint) from error
        failure = describe_failure(first)
        raise RecordError(f"{path} cannot be read: {failure}", hint=HINT) from error


def first_failure(problem: BaseException) -> BaseException:
    """Return the first rank's error in a CheckpointException, or any other error unchanged."""
    failures = list(getattr(problem, "failures", {}).values())
    if failures and isinstance(failures[0], tuple):
        first: BaseException = failures[0][0]
        return first
    return problem


def load_tensors(file: IO[bytes]) -> Any:
    """Return the tensors and plain values of a file of ``torch.save``; refuse anything else."""
    start = file.tell()
    if file.read(len(ZIP_MAGIC)) != ZIP_MAGIC:
        raise ValueError("it does not begin like a file that torch.save writes")
    file.seek(start)
    if "constants.pkl" in torch._C.PyTorchFileReader(file).get_all_records():
        raise ValueError("it is a TorchScript archive, which holds code")
    file.seek(start)
    return torch.load(file, map_location="cpu", weights_only=True)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a file, by their names."""
    with as_record_error(path):
        with path.open("rb") as file:
            weights = load_tensors(file)
        if not isinstance(weights, dict):
            raise ValueError(f"a {type(weights).__name__} is not a table of tensors")
        if not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in weights.items()):
            raise ValueError("it is not a table of tensors")
        return weights


class CheckpointReader(FileSystemReader):
    """Reads a distributed checkpoint; refuses files that hold anything other than tensors."""

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> dcp.Metadata:
        """Return the description of the tensors in ``.metadata``."""
        path = Path(self.path) / METADATA
        with as_record_error(path):
            content = io.BytesIO(path.read_bytes())
            metadata: dcp.Metadata = RestrictedUnpickler(content, METADATA_CLASSES).load()
            _check_metadata(metadata)
        metadata.storage_meta = dcp.StorageMeta(load_id=self.load_id)
        return metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        items_by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            name = self.storage_data[item.storage_index].relative_path
            items_by_file.setdefault(name, []).append(item)
        for name, items in items_by_file.items():
            path = Path(self.path) / name
            with as_record_error(path), path.open("rb") as file:
                for item in items:
                    self._read_item(file, item, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read_item(self, file: IO[bytes], item: ReadItem, planner: LoadPlanner) -> None:
        name = item.dest_index.fqn
        if item.type != LoadItemType.TENSOR:  # PyTorch would unpickle anything here.
            raise ValueError(f"{name} is not a tensor in it")
        tensor = load_tensors(self._slice_file(file, self.storage_data[item.storage_index]))
        for axis, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
            tensor = tensor.narrow(axis, start, length)
        target = planner.resolve_tensor(item).detach()
        if target.shape != tensor.shape:
            raise ValueError(f"{name} has the shape {list(tensor.shape)}, not {list(target.shape)}")
        target.copy_(tensor)
        planner.commit_tensor(item, target)


def _check_metadata(metadata: Any) -> None:
    """Refuse metadata with fields of a wrong type: a pickle can set fields to any value."""
    _expect(metadata, dcp.Metadata)
    for name, entry in metadata.state_dict_metadata.items():
        _expect(name, str)
        if isinstance(entry, dcp.BytesStorageMetadata):
            continue
        _expect(entry, dcp.TensorStorageMetadata)
        _expect(entry.size, torch.Size)
        _expect(entry.properties.dtype, torch.dtype)
        for chunk in entry.chunks:
            _expect(chunk.offsets, torch.Size)
            _expect(chunk.sizes, torch.Size)
    for index, stored in metadata.storage_data.items():
        _expect(index, dcp.MetadataIndex)
        _expect(stored.relative_path, str)
        _expect(stored.offset, int)
        _expect(stored.length, int)
        if PurePosixPath(stored.relative_path).name != stored.relative_path:
            raise ValueError(f"{one_line(stored.relative_path)} is not a file of the checkpoint")


def _expect(value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"it has a {type(value).__name__} where a {kind.__name__} belongs")
