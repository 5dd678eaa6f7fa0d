"""Packed images, CIFAR's batches, MNIST's idx files and token files, whole and broken."""

import gzip
import io
import json
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from pictures import image_folder
from scalewise.errors import Broken, NewerSchema, SpecError
from scalewise.frameworks.data import cifar, idx, kinds, tokens
from scalewise.frameworks.data.folder import Listing
from scalewise.frameworks.data.make import Recipe, made
from scalewise.frameworks.data.packed import Layout, Packed
from scalewise.frameworks.data.pixels import decoded


@pytest.fixture
def packed(tmp_path):
    image_folder(tmp_path / "files", train=4)
    made(Recipe(tmp_path / "packed", 16, source=tmp_path / "files", packed=True), print, 1)
    return tmp_path / "packed"


def test_packed_images_are_those_of_the_folder_in_its_order(packed):
    there, listing = Packed.of(packed), Listing.of(packed.with_name("files"))
    assert (there.edge, there.classes) == (16, listing.classes)
    for rows, split in ((there.train, listing.train), (there.validation, listing.validation)):
        assert len(rows) == len(split)
        assert rows.labels.tolist() == split.labels.tolist()
        order = list(range(len(split)))[::-1]
        files = [decoded(listing.path(split, n), 16) for n in order]
        assert (rows.read(order) == np.stack(files)).all()


def test_rows_are_read_into_a_batch_by_any_process(packed):
    rows = Packed.of(packed).train
    batch = np.zeros((2, 16, 16, 3), np.uint8)
    assert rows.read(np.array([3, 0]), batch) is batch
    copy = pickle.loads(pickle.dumps(rows))
    assert (copy.read([3, 0]) == batch).all()
    rows.close()
    assert (rows.read([3, 0]) == batch).all()


def test_large_sets_lie_in_several_files_of_whole_blocks():
    layout = Layout(224, 20_000, "train")
    sizes = [size for _, size in layout.files]
    assert len(sizes) == 3 and sum(sizes) == 20_000 * layout.row
    assert layout.each % layout.block == 0
    assert layout.place(layout.each) == ("train-00001.bin", 0)
    for block in layout.blocks:
        assert layout.place(block.start)[0] == layout.place(block.stop - 1)[0]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda root: os.truncate(root / "train-00000.bin", 1000), "it has 1,000 bytes instead"),
        (lambda root: (root / "train-00000.bin").unlink(), "train-00000.bin is not whole: No such"),
        (lambda root: (root / "index.json").write_text("{"), "index.json cannot be read"),
        (
            lambda root: changed(root / "index.json", train={}),
            "index.json is damaged: KeyError",
        ),
        (
            lambda root: changed(root / "index.json", edge=17),
            "the files of train are not those of 8 images",
        ),
    ],
)
def test_packed_images_that_are_not_whole_are_named(packed, damage, words):
    damage(packed)
    with pytest.raises(Broken, match=words) as raised:
        Packed.of(packed)
    assert raised.value.path.startswith(str(packed))


def changed(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_file_cut_while_it_is_read_is_an_error_and_no_crash(packed):
    rows = Packed.of(packed).train
    os.truncate(packed / "train-00000.bin", 1000)
    with pytest.raises(Broken, match="image 7 ends after 0 bytes"):
        rows.read([7])


def test_an_index_of_something_else_or_of_a_later_version_is_refused(packed):
    changed(packed / "index.json", schema=2)
    with pytest.raises(NewerSchema, match="schema 2"):
        Packed.of(packed)
    (packed / "index.json").write_text('{"a": 1}')
    with pytest.raises(SpecError, match="not an index of packed images"):
        Packed.of(packed)


def cifar_batch(path, labels, key="labels", protocol=2, text=False):
    """Write a batch as CIFAR's authors did, with keys of bytes."""
    rows = np.random.default_rng(len(labels)).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    values = {"data": rows, key: list(labels), "batch_label": b"a batch"}
    named = values if text else {name.encode(): value for name, value in values.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(named, protocol))
    return rows


@pytest.mark.parametrize("where", [".", "cifar-10-batches-py"])
@pytest.mark.parametrize(("protocol", "text"), [(0, False), (2, False), (5, True)])
def test_cifar_10_is_read_from_its_batches(tmp_path, where, protocol, text):
    home = tmp_path / where
    for n in range(1, 6):
        rows = cifar_batch(home / f"data_batch_{n}", range(10), protocol=protocol, text=text)
    cifar_batch(home / "test_batch", [3, 4], protocol=protocol, text=text)
    names = [f"thing {n}".encode() for n in range(10)]
    (home / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol))
    there = cifar.read(tmp_path)
    assert there.train.shape == (50, 32, 32, 3)
    assert there.train_labels.tolist() == list(range(10)) * 5
    assert there.validation_labels.tolist() == [3, 4]
    assert there.classes[9] == "thing 9"
    red = rows[0][:1024].reshape(32, 32)
    assert (there.train[40, :, :, 0] == red).all()
    assert kinds.kind_of(tmp_path) == "cifar"


def test_cifar_100_has_its_fine_labels_and_may_lack_names(tmp_path):
    cifar_batch(tmp_path / "train", range(100), key="fine_labels")
    cifar_batch(tmp_path / "test", [99], key="fine_labels")
    there = cifar.read(tmp_path)
    assert len(there.train) == 100
    assert there.classes == tuple(str(n) for n in range(100))


PYTHON_2 = (
    b"(dp1\nS'data'\np2\ncnumpy.core.multiarray\n_reconstruct\np3\n(cnumpy\nndarray\np4\n(I0\ntp5\n"
    b"S'b'\np6\ntp7\nRp8\n(I1\n(I1\nI3072\ntp9\ncnumpy\ndtype\np10\n(S'u1'\np11\nI0\nI1\ntp12\nRp13\n"
    b"(I3\nS'|'\np14\nNNNI-1\nI-1\nI0\ntp15\nbI00\nS'%s'\np16\ntp17\nbsS'labels'\np18\n(lp19\nI7\nas."
)


def test_a_pickle_of_python_2_is_read(tmp_path):
    for name in ("test_batch", *(f"data_batch_{n}" for n in range(1, 6))):
        (tmp_path / name).write_bytes(PYTHON_2 % (b"\\xe9" * 3072))
    there = cifar.read(tmp_path)
    assert there.train_labels.tolist() == [7] * 5
    assert (there.train == 0xE9).all()


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/scalewise-was-here",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps({b"data": Evil(), b"labels": []}), r"posix\.system is not allowed"),
        (pickle.dumps({b"data": io.BytesIO(), b"labels": []}), r"_io\.BytesIO is not allowed"),
        (pickle.dumps([1, 2]), "a list is not a table"),
        (pickle.dumps({b"data": np.zeros((1, 3), np.uint8), b"labels": [1]}), "for 1 labels"),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}), "labels from 10"),
        (pickle.dumps({b"labels": [1]}), "'data'"),
        (
            pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [1]})[:-500],
            "trunc|end",
        ),
        (b"", "."),
    ],
)
def test_a_batch_that_is_hostile_or_broken_is_refused_by_name(tmp_path, content, words):
    for name in ("test_batch", *(f"data_batch_{n}" for n in range(1, 6))):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(Broken, match=f"data_batch_1 is not a whole CIFAR batch: .*({words})"):
        cifar.read(tmp_path)
    assert not Path("/tmp/scalewise-was-here").exists()


def test_a_folder_without_batches_is_refused(tmp_path):
    with pytest.raises(SpecError, match="has no CIFAR batches"):
        cifar.read(tmp_path)


def idx_files(root, count=6, *, packed=False):
    chance = np.random.default_rng(0)
    for which in ("train", "validation"):
        images = chance.integers(0, 256, (count, 5, 4), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 3
        for name, values in ((f"{which} images", images), (f"{which} labels", labels)):
            head = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
            path = root / (idx.FILES[name] + (".gz" if packed else ""))
            content = head + values.tobytes()
            path.write_bytes(gzip.compress(content) if packed else content)
    return images


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_are_read_plain_and_gzipped(tmp_path, zipped):
    images = idx_files(tmp_path, packed=zipped)
    found, labels = idx.pair(tmp_path, "validation")
    assert (found == images).all()
    assert labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert kinds.kind_of(tmp_path) == "idx"


@pytest.mark.parametrize("content", [b"", b"abc", struct.pack(">4I", 0x0803, 9, 5, 4), bytes(99)])
def test_a_broken_idx_file_is_refused(tmp_path, content):
    idx_files(tmp_path)
    (tmp_path / idx.FILES["train images"]).write_bytes(content)
    with pytest.raises(SpecError, match="train-images-idx3-ubyte is not a whole MNIST idx file"):
        idx.pair(tmp_path, "train")


def test_missing_and_unequal_idx_files_are_refused(tmp_path):
    idx_files(tmp_path)
    (tmp_path / idx.FILES["train labels"]).write_bytes(struct.pack(">2I", 0x0801, 1) + b"\0")
    with pytest.raises(SpecError, match="6 train images and 1 labels"):
        idx.pair(tmp_path, "train")
    (tmp_path / idx.FILES["train labels"]).unlink()
    with pytest.raises(SpecError, match="has no train labels: train-labels-idx1-ubyte"):
        idx.pair(tmp_path, "train")


def test_tokens_are_mapped_and_not_loaded(tmp_path):
    values = np.array([5, 60_000, 7], np.uint16)
    values.tofile(tmp_path / "train.bin")
    values[:2].tofile(tmp_path / "val.bin")
    there = tokens.read(tmp_path)
    assert isinstance(there.train, np.memmap)
    assert there.train.tolist() == [5, 60_000, 7]
    assert there.validation.tolist() == [5, 60_000]
    assert (there.vocabulary, tokens.vocabulary(there.train)) == (None, 60_001)
    assert kinds.kind_of(tmp_path) == kinds.kind_of(tmp_path / "val.bin") == "tokens"


def test_numpy_files_and_texts_are_tokens_too(tmp_path):
    np.save(tmp_path / "t.npy", np.array([1, 2, 3], np.int32))
    (tmp_path / "t.txt").write_bytes("né".encode())
    assert tokens.read(tmp_path / "t.npy").train.tolist() == [1, 2, 3]
    text = tokens.read(tmp_path / "t.txt")
    assert (text.train.tolist(), text.vocabulary) == ([110, 195, 169], 256)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("t.bin", b"abc", "3 bytes are no uint16"),
        ("t.bin", b"", "0 bytes are no uint16"),
        ("t.npy", np.zeros(3), "float64"),
        ("t.npy", np.zeros((2, 2), int), r"shape \(2, 2\)"),
        ("t.npy", np.zeros(0, int), "holds no tokens"),
        ("t.npy", np.array([{}], object), "cannot be read as tokens"),
        ("t.txt", b"", "0 bytes are no uint8"),
    ],
)
def test_files_that_hold_no_tokens_are_refused(tmp_path, name, values, words):
    if isinstance(values, bytes):
        (tmp_path / name).write_bytes(values)
    else:
        np.save(tmp_path / name, values)
    with pytest.raises(Broken, match=words):
        tokens.read(tmp_path / name)


def test_tokens_below_0_and_folders_without_tokens_are_refused(tmp_path):
    with pytest.raises(SpecError, match="below 0"):
        tokens.vocabulary(np.array([-1, 2]))
    with pytest.raises(SpecError, match="there are no tokens in"):
        tokens.read(tmp_path)


def test_what_is_no_data_set_is_refused_with_what_would_be(tmp_path):
    with pytest.raises(SpecError, match="not a data set that scalewise knows"):
        kinds.kind_of(tmp_path)
    with pytest.raises(SpecError, match="there is no data in"):
        kinds.kind_of(tmp_path / "nowhere")
