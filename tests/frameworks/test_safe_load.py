"""Files that others may have written are loaded without running code that is in them."""

import os
import pickle
import subprocess
import sys
import tarfile
from functools import reduce
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, save
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata
from torch.distributed.checkpoint.state_dict_loader import load

from scalewise.errors import RecordError
from scalewise.frameworks.__main__ import _describe
from scalewise.frameworks.torch.checkpoint.checkpoint_files import serial_weights, tensor_metadata
from scalewise.frameworks.torch.checkpoint.safe_load import (
    CheckpointReader,
    as_record_error,
    read_weights,
)

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
DCP = "torch.distributed.checkpoint.metadata"


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def calls(marker: Path) -> dict[str, bytes]:
    """Return pickles that would write a file if they were loaded carelessly, by their kind."""
    text = f"open({str(marker)!r}, 'w').close()"
    command = f"touch {marker}"
    dotted = b"\x80\x04\x8c%c%s\x8c\x09os.system\x93\x8c%c%s\x85R." % (
        len(DCP), DCP.encode(), len(command), command.encode(),
    )  # fmt: skip
    attribute = f"cbuiltins\ngetattr\n(c{DCP}\nMetadata\nV__init__\ntR(V{command}\ntR."
    return {
        "os.system": pickle.dumps(Call(os.system, command)),
        "eval": pickle.dumps(Call(eval, text)),
        "exec in a list": pickle.dumps([1, {"a": Call(exec, text)}], 0),
        "function of torch": pickle.dumps(Call(torch.save, 1, str(marker))),
        "name with a dot": dotted,
        "getattr": attribute.encode(),
        "in good metadata": pickle.dumps(Metadata({"model.w": Call(os.system, command)})),
    }


KINDS = list(calls(Path("/nowhere")))
BROKEN = {
    "empty": b"",
    "garbage": bytes(range(256)),
    "wrong arguments": f"c{DCP}\nMetadata\n(I1\nI2\nI3\nI4\nI5\nI6\nI7\ntR.".encode(),
    "wrong Size": b"ctorch\nSize\n(Vabc\ntR.",
    "wrong layout": b"ctorch.serialization\n_get_layout\n(Vabc\ntR.",
    "wrong content": pickle.dumps(Metadata([1, 2])),
    "class without state": f"c{DCP}\nMetadata\n.".encode(),
    "nested lists": b"\x80\x04" + b"]" * 300_000 + b"a" * 299_999 + b".",
    "lists of lists": pickle.dumps(reduce(lambda inner, _: [inner, inner], range(60), [1])),
    "huge length": b"\x80\x05\x96" + (1 << 60).to_bytes(8, "little") + b"x.",
}


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    """Return a distributed checkpoint of one tensor, without checksums."""
    folder = tmp_path / "run" / "checkpoints" / "step-000000001"
    save({"model.w": torch.arange(4.0)}, storage_writer=FileSystemWriter(folder), no_dist=True)
    return folder


def refused(function, *args) -> str:
    """Return the one sentence that a file is refused with."""
    with pytest.raises(RecordError) as caught:
        function(*args)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "weights_only" not in sentence + caught.value.hint
    return sentence


def point_at(checkpoint: Path, content: bytes) -> None:
    """Let the metadata of a checkpoint say that its tensor lies in this content."""
    metadata = FileSystemReader(checkpoint).read_metadata()
    (stored,) = metadata.storage_data.values()
    file = checkpoint / stored.relative_path
    stored.offset, stored.length = file.stat().st_size, len(content)
    file.write_bytes(file.read_bytes() + content)
    (checkpoint / ".metadata").write_bytes(pickle.dumps(metadata))


def saved(value, path: Path, **options) -> bytes:
    torch.save(value, path, **options)
    return path.read_bytes()


def test_a_checkpoint_is_read_as_before(checkpoint):
    assert serial_weights(checkpoint)["w"].tolist() == [0, 1, 2, 3]
    (shape,) = tensor_metadata(checkpoint).values()
    assert shape.size == (4,)
    assert shape.properties.dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_that_calls_something_is_refused_by_its_name(kind, checkpoint, tmp_path):
    content = calls(tmp_path / "marker")[kind]
    (checkpoint / ".metadata").write_bytes(content)
    sentence = refused(serial_weights, checkpoint)
    assert sentence.startswith(f"{checkpoint / '.metadata'} cannot be read: ")
    assert "is not allowed in it" in sentence
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("kind", BROKEN)
def test_metadata_that_is_broken_is_refused(kind, checkpoint):
    (checkpoint / ".metadata").write_bytes(BROKEN[kind])
    assert ".metadata cannot be read: " in refused(serial_weights, checkpoint)


def test_metadata_may_not_name_files_elsewhere(checkpoint, tmp_path):
    metadata = FileSystemReader(checkpoint).read_metadata()
    (stored,) = metadata.storage_data.values()
    stored.relative_path = "../../elsewhere"
    (checkpoint / ".metadata").write_bytes(pickle.dumps(metadata))
    assert "elsewhere is not a file of the checkpoint" in refused(serial_weights, checkpoint)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_tensor_that_calls_something_is_refused(zipped, checkpoint, tmp_path):
    call = Call(os.system, f"touch {tmp_path / 'marker'}")
    content = saved(call, tmp_path / "call.pt", _use_new_zipfile_serialization=zipped)
    point_at(checkpoint, content)
    sentence = refused(serial_weights, checkpoint)
    assert "__0_0.distcp cannot be read: " in sentence
    assert ("posix.system is not allowed in it" in sentence) == zipped
    assert not (tmp_path / "marker").exists()


def test_an_entry_of_bytes_is_refused_where_a_tensor_belongs(checkpoint, tmp_path):
    call = Call(os.system, f"touch {tmp_path / 'marker'}")
    point_at(checkpoint, saved(call, tmp_path / "call.pt"))
    metadata = FileSystemReader(checkpoint).read_metadata()
    metadata.state_dict_metadata["model.w"] = BytesStorageMetadata()
    (index,) = metadata.storage_data
    metadata.storage_data = {type(index)("model.w"): metadata.storage_data[index]}
    (checkpoint / ".metadata").write_bytes(pickle.dumps(metadata))

    def fill() -> None:
        with as_record_error(checkpoint):
            state = {"model.w": torch.zeros(4)}
            load(state, storage_reader=CheckpointReader(checkpoint), no_dist=True)

    assert "model.w is not a tensor in it" in refused(fill)
    assert not (tmp_path / "marker").exists()


def a_tar(path: Path) -> bytes:
    """Return a file of the format that PyTorch had before the year 2017."""
    with tarfile.open(path, "w") as tar:
        tar.add(__file__, "storages")
    return path.read_bytes()


def a_script(path: Path) -> bytes:
    """Return an archive of TorchScript, which holds code beside its tensors."""
    with torch.serialization._open_zipfile_writer(str(path)) as archive:
        for name in ("data.pkl", "constants.pkl"):
            archive.write_record(name, pickle.dumps({}, 2), len(pickle.dumps({}, 2)))
    return path.read_bytes()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda path: saved(Call(os.system, f"touch {path}.marker"), path),
            r"posix\.system is not",
        ),
        (lambda path: saved({"w": Call(eval, f"open('{path}.marker','w')")}, path), r"eval is not"),
        (lambda path: saved({"w": Call(torch.hub.load, path)}, path), r"torch\.hub\.load is not"),
        (lambda path: pickle.dumps(Call(os.system, f"touch {path}.marker")), "does not begin like"),
        (lambda path: saved(torch.nn.Linear(2, 2), path), r"torch\.nn.*Linear is not allowed"),
        (lambda path: saved([torch.zeros(1)], path), "a list is not a table of tensors"),
        (lambda path: saved({"w": [1]}, path), "it is not a table of tensors"),
        (lambda path: saved({"w": torch.zeros(9)}, path)[:-200], "cannot be read: "),
        (a_tar, "does not begin like a file that torch.save writes"),
        (a_script, "a TorchScript archive, which holds code"),
        (lambda path: b"", "does not begin like"),
    ],
)
def test_weights_that_are_more_than_tensors_are_refused(make, says, tmp_path):
    path = tmp_path / "weights.pt"
    path.write_bytes(make(path))
    with pytest.raises(RecordError, match=says):
        read_weights(path)
    refused(read_weights, path)
    assert not (tmp_path / "weights.pt.marker").exists()


def test_weights_are_read_as_before(tmp_path):
    torch.save({"w": torch.arange(3), "b": torch.nn.Parameter(torch.ones(1))}, tmp_path / "w.pt")
    assert read_weights(tmp_path / "w.pt")["w"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("place", [".metadata", "weights.pt"])
def test_export_says_in_one_sentence_what_it_refuses(place, checkpoint, tmp_path):
    marker = tmp_path / "marker"
    call = Call(os.system, f"touch {marker}")
    if place == ".metadata":
        run = checkpoint.parent.parent
        (checkpoint / ".metadata").write_bytes(pickle.dumps(call))
    else:
        run = tmp_path / "saved"
        run.mkdir()
        saved(call, run / "weights.pt")
    done = subprocess.run(
        [Path(sys.executable).with_name("scalewise"), "export", run, "-o", tmp_path / "out.pt"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "posix.system is not allowed in it" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr and "weights_only" not in done.stderr
    assert not marker.exists() and not (tmp_path / "out.pt").exists()


def test_the_cause_of_a_failed_run_does_not_advise_to_run_code(tmp_path):
    saved(Call(os.system, "true"), tmp_path / "a.pt")
    with pytest.raises(pickle.UnpicklingError) as caught:
        torch.load(tmp_path / "a.pt", weights_only=True)
    assert "weights_only" in str(caught.value)
    assert _describe(caught.value) == "UnpicklingError: posix.system is not allowed in it"
