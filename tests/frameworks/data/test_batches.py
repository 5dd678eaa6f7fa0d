"""Batches of real formats, as they travel and as a model sees them."""

import pickle

import numpy as np
import pytest
import torch
import torch.distributed as dist

from builders import a_run
from scalewise.errors import Broken, SpecError
from scalewise.frameworks.data.image_folder import Listing
from scalewise.frameworks.data.make_data import synthetic_image
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.torch.input.batches import IGNORED_LABEL
from scalewise.frameworks.torch.input.data_sets import load

Image = pytest.importorskip("PIL.Image")  # Comes with the extra `images`, and with dev.
CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    """Make two classes of four images of 20 × 20 each, in a path with a space."""
    home = tmp_path / "a set"
    for part, count in (("train", 4), ("val", 2)):
        for label in range(2):
            place = home / part / f"class {label}"
            place.mkdir(parents=True)
            for n in range(count):
                Image.fromarray(synthetic_image(0, label, n, 20)).save(place / f"{n}.png")
    return home


def a_load(data, **said):
    """Load a data set as a run would."""
    spec = a_run(framework="torch", workload="mlp", data=str(data), **said)
    return load(Source.of_run(spec), spec)


def test_an_image_folder_is_seen_by_its_classes(folder):
    data = a_load(folder, edge=20)
    assert (len(data.train), len(data.validation), data.classes) == (8, 4, 2)
    images, labels = data.train.batch(torch.tensor([0, 7]), 0)
    assert images.shape == (2, 20, 20, 3) and images.dtype == torch.uint8
    assert labels.tolist() == [0, 1]
    assert np.array_equal(images[1].numpy(), synthetic_image(0, 1, 3, 20))
    seen = data.preprocessing.build(CPU)(images)
    expected = (images[0, :, :, 0] / 255 - 0.485) / 0.229
    assert data.shape == (3, 20, 20) and seen.shape == (2, 3, 20, 20)
    torch.testing.assert_close(seen[0, 0], expected)


def test_a_broken_image_does_not_count_and_is_named(folder, capfd):
    (folder / "train" / "class 0" / "1.png").write_bytes(b"")
    data = a_load(folder, edge=20)
    for _ in range(2):
        images, labels = data.train.batch(torch.arange(8), 0)
        assert labels.tolist() == [0, IGNORED_LABEL, 0, 0, 1, 1, 1, 1]
        assert not images[1].any()
    told = capfd.readouterr().err
    assert told.count("class 0/1.png cannot be read: it is empty") == 1


def test_a_broken_image_ends_the_run_by_choice(folder):
    (folder / "train" / "class 0" / "1.png").write_bytes(b"")
    with pytest.raises(Broken, match=r"class 0/1\.png"):
        a_load(folder, edge=20, broken="refuse").train.batch(torch.arange(8), 0)


def test_a_batch_without_a_whole_image_is_blank_and_counts_for_nothing(folder):
    (folder / "train" / "class 0" / "1.png").write_bytes(b"no image")
    images, labels = a_load(folder, edge=20).train.batch(torch.tensor([1]), 0)
    assert labels.tolist() == [IGNORED_LABEL] and not images.any()


def test_one_rank_lists_and_the_others_ask_nobody(folder, monkeypatch):
    spec = a_run(framework="torch", workload="mlp", data=str(folder), edge=20)
    source, sent = Source.of_run(spec), []

    def load_as(rank):
        def broadcast(content):
            sent.extend(content if rank == 0 else [])
            content[:] = sent

        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        monkeypatch.setattr(dist, "broadcast_object_list", broadcast)
        return load(source, spec)

    one = load_as(rank=0)
    monkeypatch.setattr(Listing, "of", lambda path: pytest.fail("it asked the file system"))
    other = load_as(rank=1)
    for split in ("train", "validation"):
        every = torch.arange(len(getattr(one, split)))
        mine, theirs = (getattr(each, split).batch(every, 0) for each in (one, other))
        assert torch.equal(mine[0], theirs[0]) and torch.equal(mine[1], theirs[1])


@pytest.mark.parametrize("augment", ["flip", "crop"])
def test_chance_is_of_seed_epoch_and_image_alone(folder, augment):
    data, again = (a_load(folder, edge=20, augment=augment) for _ in range(2))
    whole = data.train.batch(torch.arange(8), 3)[0]
    parts = [again.train.batch(torch.tensor([n]), 3)[0][0] for n in reversed(range(8))]
    assert torch.equal(whole, torch.stack(parts[::-1]))
    others = [data.train.batch(torch.arange(8), epoch)[0] for epoch in range(6)]
    assert any(not torch.equal(whole, each) for each in others)
    plain = a_load(folder, edge=20)
    held = (each.validation.batch(torch.arange(4), 3)[0] for each in (data, plain))
    assert torch.equal(*held)


def test_a_flip_mirrors_some_images_and_leaves_the_others(folder):
    plain = a_load(folder, edge=20).train.batch(torch.arange(8), 0)[0]
    data = a_load(folder, edge=20, augment="flip")
    seen = {True: 0, False: 0}
    for epoch in range(8):
        for mine, theirs in zip(data.train.batch(torch.arange(8), epoch)[0], plain):
            mirrored = not torch.equal(mine, theirs)
            assert torch.equal(mine, theirs.flip(1) if mirrored else theirs)
            seen[mirrored] += 1
    assert min(seen.values()) > 10


@pytest.fixture
def cifar(tmp_path):
    """Make CIFAR's files with four images each."""
    chance = np.random.default_rng(0)
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        rows = chance.integers(0, 256, (4, 3072), dtype=np.uint8)
        content = {b"data": rows, b"labels": [0, 3, 9, 1]}
        (tmp_path / name).write_bytes(pickle.dumps(content))
    return tmp_path


def test_cifar_is_resized_by_the_loader(cifar):
    data = a_load(cifar, edge=64)
    assert (len(data.train), len(data.validation), data.classes) == (20, 4, 10)
    images, _ = data.train.batch(torch.arange(3), 0)
    assert data.shape == (3, 64, 64) and images.shape == (3, 32, 32, 3)
    assert data.preprocessing.build(CPU)(images).shape == (3, 3, 64, 64)
    own = a_load(cifar)
    assert own.shape == (3, 32, 32) and own.preprocessing.build(CPU)(images).shape == (3, 3, 32, 32)


def test_sets_in_memory_are_mirrored_and_never_cut(cifar):
    data = a_load(cifar, augment="flip")
    plain = a_load(cifar).train.batch(torch.arange(20), 0)[0]
    mine = data.train.batch(torch.arange(20), 0)[0]
    same = [torch.equal(a, b) for a, b in zip(mine, plain)]
    assert 0 < sum(same) < 20
    flipped = [torch.equal(a, b.flip(1)) for a, b in zip(mine, plain)]
    assert all(a or b for a, b in zip(same, flipped))
    with pytest.raises(SpecError, match='"crop" is for folders of images'):
        a_load(cifar, augment="crop")


def test_tokens_of_a_file_come_with_the_ones_after_them(tmp_path):
    for name, count in (("train.bin", 100), ("val.bin", 30)):
        np.arange(count, dtype=np.uint16).tofile(tmp_path / name)
    data = a_load(tmp_path, length=8)
    assert (len(data.train), len(data.validation), data.classes) == (12, 3, 100)
    inputs, labels = data.train.batch(torch.tensor([2]), 0)
    assert inputs.tolist() == [list(range(16, 24))] and labels.tolist() == [list(range(17, 25))]


def test_a_text_holds_some_of_its_sequences_back(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("scale must serve purpose " * 20)
    data = a_load(path, length=16)
    assert data.classes == 256 and data.shape == 16
    whole = (25 * 20 - 1) // 16
    assert len(data.train) + len(data.validation) == whole
    path.write_text("short")
    with pytest.raises(SpecError, match="too few for sequences of 16"):
        a_load(path, length=16)


def test_packed_images_of_another_size_are_refused(folder, tmp_path):
    from scalewise.frameworks.data.make_data import Recipe, make_data_set

    to = tmp_path / "packed"
    make_data_set(Recipe(to=to, source=folder, edge=16, packed=True), lambda done, total: None)
    data = a_load(to)
    images, labels = data.train.batch(torch.tensor([5, 0]), 0)
    assert data.shape == (3, 16, 16) and images.shape == (2, 16, 16, 3)
    assert labels.tolist() == [1, 0]
    theirs = a_load(folder, edge=16).train.batch(torch.tensor([5, 0]), 0)[0]
    assert torch.equal(images, theirs)
    with pytest.raises(SpecError, match="packed at 16 pixels, and this run says edge 32"):
        a_load(to, edge=32)
