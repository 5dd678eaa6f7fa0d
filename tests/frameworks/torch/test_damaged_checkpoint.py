"""A damaged checkpoint is named and never used; the newest whole one is."""

import json
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from killed_training import SCRIPT, a_training, equal, failure, train, weights
from scalewise.errors import RecordError, SpecError
from scalewise.export import export
from scalewise.frameworks.torch import Torch
from scalewise.frameworks.torch.checkpoint.checkpoint_files import serial_weights
from scalewise.record import checkpoints
from scalewise.record.write import write_json
from scalewise.spec import RunSpec
from start_ranks import start

pytestmark = [pytest.mark.training, pytest.mark.timeout(600)]


def fake_checkpoint(folder: Path, step: int = 10) -> Path:
    """Write the files of a checkpoint of two ranks, which hold no tensors."""
    path = folder / checkpoints.FOLDER / checkpoints.name_of(step)
    progress = checkpoints.Progress(
        step=step, epoch=0, place=step, global_batch=8, layout={}, workload="mlp", options={}
    )
    checkpoints.write_progress(path, progress)
    for name, content in (("__0_0.distcp", b"a" * 100), ("__1_0.distcp", b"b" * 100)):
        (path / name).write_bytes(content)
    (path / ".metadata").write_bytes(b"metadata")
    files = {file.name: checkpoints.checksum(file) for file in path.glob("*.distcp")}
    checkpoints.write_checksums(path, files)
    return path


def flip(path: Path, place: int = -40) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def swap(path: Path) -> None:
    one, other = path / "__0_0.distcp", path / "__1_0.distcp"
    one.rename(path / "between"), other.rename(one), (path / "between").rename(other)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def change(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


DAMAGES = {
    "missing": (lambda path: (path / "__1_0.distcp").unlink(), "__1_0.distcp is missing"),
    "truncated": (lambda path: truncate(path / "__1_0.distcp"), "__1_0.distcp has 70 bytes, not"),
    "empty": (lambda path: (path / ".metadata").write_bytes(b""), ".metadata has 0 bytes, not 8"),
    "longer": (lambda path: (path / ".metadata").write_bytes(b"metadata!"), "has 9 bytes, not 8"),
    "flipped": (lambda path: flip(path / "__0_0.distcp"), "__0_0.distcp was changed"),
    "flipped metadata": (lambda path: flip(path / ".metadata", 0), ".metadata was changed"),
    "swapped": (swap, "__0_0.distcp was changed"),
    "folder": (lambda path: replace_by_folder(path / "__0_0.distcp"), "is not a file"),
    "unreadable": (lambda path: replace_by_loop(path / "__0_0.distcp"), "__0_0.distcp cannot be"),
    "no metadata": (lambda path: (path / ".metadata").unlink(), ".metadata is missing"),
    "no progress": (lambda path: (path / "checkpoint.json").unlink(), "checkpoint.json is missing"),
    "other progress": (
        lambda path: change(path / "checkpoint.json", '"place": 10', '"place": 11'),
        "checkpoint.json was changed",
    ),
    "other step": (
        lambda path: path.rename(path.with_name("step-000000011")),
        "is of another step, 10",
    ),
    "no index": (lambda path: (path / "checksums.json").unlink(), "checksums.json is missing"),
    "empty index": (lambda path: (path / "checksums.json").write_text(""), "checksums.json or"),
    "index of nothing": (lambda path: (path / "checksums.json").write_text("[]"), "checksums.json"),
    "nested index": (lambda path: (path / "checksums.json").write_text("[" * 99_999), "checksums"),
    "flipped index": (
        lambda path: change(path / "checksums.json", '"blake2b": "', '"blake2b": "0'),
        "was changed",
    ),
    "index without a file": (
        lambda path: change(path / "checksums.json", "__0_0.distcp", "__5_0.distcp"),
        "__5_0.distcp is missing",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_of_a_checkpoint_is_named(damage, tmp_path):
    path = fake_checkpoint(tmp_path)
    assert not checkpoints.size_damage(path) and not checkpoints.content_damage(path)
    hurt, says = DAMAGES[damage]
    hurt(path)
    (path,) = checkpoints.written(tmp_path / checkpoints.FOLDER)
    found = checkpoints.size_damage(path)
    assert says in (found or checkpoints.content_damage(path))
    shares = [checkpoints.content_damage(path, rank, 3) for rank in range(3)]
    assert found or any(says in share for share in shares)


@pytest.mark.parametrize("damage", [*DAMAGES])
def test_no_damaged_checkpoint_is_exported(damage, tmp_path):
    fake_checkpoint(tmp_path, 5)
    path = fake_checkpoint(tmp_path)
    DAMAGES[damage][0](path)
    path = checkpoints.written(tmp_path / checkpoints.FOLDER)[-1]
    with pytest.raises(RecordError, match=f"{path.name} is damaged: ") as caught:
        serial_weights(path)
    assert caught.value.hint == "--step 5 takes an older one"


@pytest.mark.parametrize("name", [".nfs00000001", "NOTES.md", ".DS_Store", "__2_0.distcp"])
def test_a_file_that_is_not_part_of_a_checkpoint_is_no_damage(name, tmp_path):
    path = fake_checkpoint(tmp_path)
    (path / name).touch()
    assert not checkpoints.size_damage(path) and not checkpoints.content_damage(path)


def test_the_checkpoint_that_a_run_resumes_from_is_never_removed(tmp_path):
    old, new = fake_checkpoint(tmp_path, 5), fake_checkpoint(tmp_path, 10)
    checkpoints.remove_old(old.parent, 1, needed=old)
    assert old.exists() and new.exists()
    checkpoints.remove_old(old.parent, 1)
    assert not old.exists() and new.exists()


def test_a_checkpoint_that_is_named_must_be_whole_and_one_of_a_run_may_be_older(tmp_path):
    old, new = fake_checkpoint(tmp_path, 5), fake_checkpoint(tmp_path, 10)
    assert checkpoints.find(tmp_path) == new
    truncate(new / "__0_0.distcp")
    assert checkpoints.find(tmp_path) == old
    assert "__0_0.distcp has 70 bytes, not 100" in failure(checkpoints.find, new)
    (old / "checkpoint.json").unlink()
    assert "and so are all older checkpoints there" in failure(checkpoints.find, tmp_path)


def test_damaged_and_unfinished_checkpoints_do_not_count_as_kept(tmp_path):
    old, new, unfinished = (fake_checkpoint(tmp_path, step) for step in (5, 10, 15))
    (unfinished / "checksums.json").unlink()
    (old.parent / "step-000000010.backup").mkdir()
    checkpoints.remove_old(old.parent, 2)
    assert {path.name for path in old.parent.iterdir()} == {
        old.name, new.name, "step-000000010.backup",
    }  # fmt: skip
    checkpoints.set_aside(new)
    checkpoints.remove_old(old.parent, 1)
    assert old.exists() and (old.parent / "damaged-step-000000010").exists()


SHORT = {"epochs": None, "steps": 24, "checkpoint_keep": 3, "ema": None}


def notes(home: Path, rank: int, key: str) -> list:
    """Return what a rank noted in its second attempt."""
    text = (home / f"rank-{rank:05d}.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    return [line[key] for line in lines if line["attempt"] == 2 and key in line]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a copy of a run that has its checkpoints after steps 8, 16 and 24."""
    made: dict[str, Path] = {}

    def copy(topology: str, to: Path) -> Path:
        if topology not in made:
            made[topology] = tmp_path_factory.mktemp(topology)
            train(a_training(topology=topology, strategy="fsdp", **SHORT), made[topology])
        return Path(shutil.copytree(made[topology], to / "run"))

    return copy


def at(home: Path, step: int) -> Path:
    return home / checkpoints.FOLDER / checkpoints.name_of(step)


def go_on(topology: str, home: Path) -> None:
    """Train a finished run once more, from what there is."""
    (home / "weights.pt").unlink()
    train(a_training(topology=topology, strategy="fsdp", **SHORT), home, attempt=2)


def test_a_run_goes_on_from_its_newest_whole_checkpoint(finished, tmp_path, capfd):
    home = finished("1x1", tmp_path)
    expected = weights(home)
    truncate(at(home, 24) / "__0_0.distcp")
    go_on("1x1", home)
    assert notes(home, 0, "resumed") == [16]
    (sentence,) = notes(home, 0, "damaged")[0]
    assert sentence.startswith("checkpoint step-000000024 is damaged (__0_0.distcp has ")
    assert sentence.endswith(": resumed from step-000000016")
    assert sentence in capfd.readouterr().out
    assert equal(weights(home), expected)
    assert (home / checkpoints.FOLDER / "damaged-step-000000024").exists()
    assert not checkpoints.size_damage(at(home, 24)) + checkpoints.content_damage(at(home, 24))


def test_two_ranks_agree_on_the_newest_whole_checkpoint(finished, tmp_path):
    home = finished("1x2", tmp_path)
    expected = weights(home)
    flip(at(home, 24) / "__1_0.distcp")
    (at(home, 16) / "__0_0.distcp").unlink()
    go_on("1x2", home)
    for rank in (0, 1):
        assert notes(home, rank, "resumed") == [8]
        assert [each.split(":")[0] for each in notes(home, rank, "damaged")[0]] == [
            "checkpoint step-000000024 is damaged (__1_0.distcp was changed)",
            "checkpoint step-000000016 is damaged (__0_0.distcp is missing)",
        ]
    assert equal(weights(home), expected)


def test_a_run_without_a_whole_checkpoint_starts_from_its_beginning(finished, tmp_path):
    home = finished("1x1", tmp_path)
    expected = weights(home)
    for step in (8, 16, 24):
        (at(home, step) / ".metadata").write_bytes(b"")
    go_on("1x1", home)
    assert not notes(home, 0, "resumed")
    told = notes(home, 0, "damaged")[0]
    assert len(told) == 3 and all("the run starts from its beginning" in each for each in told)
    assert equal(weights(home), expected)


def make_old(checkpoint: Path) -> None:
    """Make a checkpoint as scalewise wrote it before there were checksums."""
    (checkpoint / "checksums.json").unlink()
    values = json.loads((checkpoint / "checkpoint.json").read_text())
    del values["checksums"]
    (checkpoint / "checkpoint.json").write_text(json.dumps(values))


def test_a_checkpoint_without_checksums_is_read(finished, tmp_path):
    home = finished("1x1", tmp_path)
    expected = weights(home)
    for step in (8, 16, 24):
        make_old(at(home, step))
    export(home, tmp_path / "weights.pt")
    assert equal(torch.load(tmp_path / "weights.pt"), expected)
    shutil.rmtree(at(home, 24))
    go_on("1x1", home)
    assert notes(home, 0, "resumed") == [16] and not notes(home, 0, "damaged")
    assert equal(weights(home), expected)


def cause_of_failure(spec: RunSpec, home: Path, attempt: int = 1) -> str:
    """Train in vain; return what the ranks say of it, which is all the same."""
    home.mkdir(exist_ok=True)
    write_json(home / "spec.json", spec.to_dict())
    world = spec.topology.world
    code, said = start(world, SCRIPT, home, "never", SCALEWISE_ATTEMPT=str(attempt))
    assert code == 1 and "Traceback" not in said, said[-4000:]
    lines = [(home / f"rank-{rank:05d}.jsonl").read_text().splitlines() for rank in range(world)]
    return json.loads(next(each[-1] for each in lines if "failed" in each[-1]))["failed"]


@pytest.mark.parametrize("hostile", [True, False])
def test_a_checkpoint_without_checksums_that_cannot_be_read_is_named(hostile, finished, tmp_path):
    class Call:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'marker'}",)

    topology = "1x1" if hostile else "1x2"
    home = finished(topology, tmp_path)
    make_old(at(home, 24))
    if hostile:
        (at(home, 24) / ".metadata").write_bytes(pickle.dumps(Call()))
        says = ".metadata cannot be read: posix.system is not allowed in it"
    else:
        truncate(at(home, 24) / "__1_0.distcp")
        says = "__1_0.distcp cannot be read: "
    spec = a_training(topology=topology, strategy="fsdp", **SHORT)
    assert says in cause_of_failure(spec, home, attempt=2)
    assert not (tmp_path / "marker").exists()


def test_a_damaged_checkpoint_to_resume_from_is_refused_where_it_is_named(finished, tmp_path):
    home = finished("1x1", tmp_path)
    flip(at(home, 24) / "__0_0.distcp")
    spec = a_training(topology="1x1", **SHORT, resume=str(at(home, 24)))
    Torch().check(spec)  # Contents are not read before the ranks start.
    cause = cause_of_failure(spec, tmp_path / "then")
    assert cause.startswith(f"{at(home, 24)} is damaged: __0_0.distcp was changed")
    assert at(home, 24).exists(), "somebody else's checkpoint stays where it is"
    truncate(at(home, 24) / "__0_0.distcp")
    with pytest.raises(SpecError, match=r"is damaged: __0_0\.distcp has"):
        Torch().check(spec)


def test_export_refuses_a_damaged_checkpoint_by_the_name_of_its_file(finished, tmp_path):
    home = finished("1x1", tmp_path)
    flip(at(home, 24) / "__0_0.distcp", 200)
    told = failure(export, home, tmp_path / "weights.pt")
    assert told.endswith("step-000000024 is damaged: __0_0.distcp was changed")
    assert not (tmp_path / "weights.pt").exists()
    export(home, tmp_path / "weights.pt", 16)
