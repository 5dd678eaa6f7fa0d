"""Packed images, CIFAR's batches, MNIST's idx files and token files, whole and broken."""

import io
import json
import math
import os
import pickle
import struct
import subprocess
import sys
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from image_files import cifar_batch, idx_files, image_folder
from scalewise.errors import Broken, NewerSchema, ScalewiseError, SpecError
from scalewise.frameworks import in_memory_data
from scalewise.frameworks.data import cifar, idx, tokens
from scalewise.frameworks.data.check_data import check_data_set
from scalewise.frameworks.data.image_folder import Listing
from scalewise.frameworks.data.make_data import Recipe, make_data_set
from scalewise.frameworks.data.packed import Layout, Packed
from scalewise.frameworks.data.pixels import decode_image
from scalewise.frameworks.data_source import Source, kind_of


@pytest.fixture
def packed(tmp_path):
    image_folder(tmp_path / "files", train=4)
    make_data_set(Recipe(tmp_path / "packed", 16, source=tmp_path / "files", packed=True), print, 1)
    return tmp_path / "packed"


def test_packed_images_are_those_of_the_folder_in_its_order(packed):
    there, listing = Packed.of(packed), Listing.of(packed.with_name("files"))
    assert (there.edge, there.classes) == (16, listing.classes)
    for rows, split in ((there.train, listing.train), (there.validation, listing.validation)):
        assert len(rows) == len(split)
        assert rows.labels.tolist() == split.labels.tolist()
        order = list(range(len(split)))[::-1]
        files = [decode_image(listing.path(split, n), 16) for n in order]
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
    assert len(sizes) == 3 and sum(sizes) == 20_000 * layout.row_bytes
    assert layout.file_images % layout.block_images == 0
    assert layout.locate(layout.file_images) == ("train-00001.bin", 0)
    for block in layout.blocks:
        assert layout.locate(block.start)[0] == layout.locate(block.stop - 1)[0]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda root: os.truncate(root / "train-00000.bin", 1000), "it has 1,000 bytes instead"),
        (
            lambda root: (root / "train-00000.bin").unlink(),
            "train-00000.bin is not complete: No such",
        ),
        (lambda root: (root / "index.json").write_text("{"), "index.json is damaged: Expecting"),
        (
            lambda root: changed(root / "index.json", train={}),
            "index.json is damaged: it has no 'labels'",
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


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((("schema",), value) for value in ("2", None, 0, -1, True, 1.5, [])),
        *((("edge",), value) for value in (0, -32, math.inf, math.nan, "16", None, 10**400, 16.0)),
        *((("classes",), value) for value in (["ant"], [], {}, None, "ants", [1, 2])),
        *((("train",), value) for value in ([1, 2], None, "x", 7)),
        *(
            (("train", "labels"), [value] * 8)
            for value in (-1, 2, 2**40, 2**70, "x", [1], 0.0, None)
        ),
        *((("train", "labels"), value) for value in ([], [0] * 7, None, {}, 5)),
        *((("train", "files"), value) for value in ([], None, 3, "x", [{}], [None])),
        *((("train", "checksums"), value) for value in ([], None, [7], 3)),
        *((("validation", "block"), value) for value in (0, None, "x")),
    ],
)
def test_a_damaged_index_is_always_called_so(packed, place, value):
    path = packed / "index.json"
    index = json.loads(path.read_text())
    table = index
    for name in place[:-1]:
        table = table[name]
    table[place[-1]] = value
    path.write_text(json.dumps(index))
    with pytest.raises(Broken, match=r"index\.json is damaged: .") as raised:
        Packed.of(packed)
    assert raised.value.path == str(path) and "data make" in raised.value.hint
    with pytest.raises(Broken, match="is damaged"):
        Source.of(str(packed))
    (problem,) = check_data_set(packed, print, 1)["problems"]
    assert "is damaged" in problem["problem"] and problem["path"] == str(path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(data=st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_an_index_with_anything_in_it_is_read_or_refused_in_a_sentence(packed, data):
    path = packed / "index.json"
    kept = path.read_text()
    index = json.loads(kept)
    table = index[data.draw(st.sampled_from(["train", "validation"]))]
    table = data.draw(st.sampled_from([index, table]))
    table[data.draw(st.sampled_from(sorted(table)))] = data.draw(VALUES)
    path.write_text(json.dumps(index))
    refused = None
    try:
        there = Packed.of(packed)
    except ScalewiseError as bad:
        refused = bad
    path.write_text(kept)
    if refused:
        assert str(path) in str(refused) and refused.hint
    else:
        assert set(there.train.labels) <= set(range(len(there.classes))) and there.edge == 16


def test_an_index_nested_beyond_reading_is_damaged(packed):
    (packed / "index.json").write_text("[" * 100_000)
    with pytest.raises(Broken, match="is damaged"):
        Packed.of(packed)


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
    assert there.train.images.shape == (50, 32, 32, 3)
    assert there.train.labels.tolist() == list(range(10)) * 5
    assert there.validation.labels.tolist() == [3, 4]
    assert there.classes[9] == "thing 9"
    red = rows[0][:1024].reshape(32, 32)
    assert (there.train.images[40, :, :, 0] == red).all()
    assert kind_of(tmp_path) == "cifar"


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
    assert there.train.labels.tolist() == [7] * 5
    assert (there.train.images == 0xE9).all()


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/scalewise-was-here",)


class NoNumbers:
    """An array of pointers, made of the pickle's own bytes."""

    class Kind:
        def __reduce__(self):
            fields = {"a": (np.dtype("O"), 0)}
            return np.dtype, ("V8", False, True), (3, "|", None, ("a",), fields, 8, 1, 0)

    def __reduce__(self):
        return np.zeros(0).__reduce__()[0], (np.ndarray, (0,), b"b"), (
            1, (1,), self.Kind(), False, b"\x41" * 8,
        )  # fmt: skip


def test_bytes_of_a_batch_are_not_taken_for_pointers(tmp_path):
    for name in ("test_batch", *(f"data_batch_{n}" for n in range(1, 6))):
        content = {b"data": np.zeros((1, 3072), np.uint8), b"labels": NoNumbers()}
        (tmp_path / name).write_bytes(pickle.dumps(content))
    done = subprocess.run(
        [Path(sys.executable).with_name("scalewise"), "data", "check", tmp_path],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "an array of 'V8' is not allowed in it" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps({b"data": Evil(), b"labels": []}), r"posix\.system is not allowed"),
        (pickle.dumps({b"data": io.BytesIO(), b"labels": []}), r"_io\.BytesIO is not allowed"),
        (pickle.dumps([1, 2]), "a list is not a dictionary"),
        (pickle.dumps({b"data": np.zeros((1, 3), np.uint8), b"labels": [1]}), "for 1 labels"),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}), "labels from 10"),
        (pickle.dumps({b"labels": [1]}), "'data'"),
        (
            pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [1]})[:-500],
            "trunc|end",
        ),
        (b"", "."),
        (pickle.dumps({b"data": NoNumbers(), b"labels": [1]}), "an array of 'V8' is not allowed"),
        (
            pickle.dumps({b"data": reduce(lambda x, _: [x, x], range(60), [1]), b"labels": []}),
            "its data is a list",
        ),
        (
            pickle.dumps(
                {
                    b"data": np.zeros((1, 3072), np.uint8),
                    b"labels": reduce(lambda x, _: [x, x], range(60), [1]),
                }
            ),
            "its labels are not whole numbers",
        ),
        (pickle.dumps({(1, 2): 3}), "its keys are not text"),
        (b"\x80\x04" + b"]" * 300_000 + b"a" * 299_999 + b".", "a list is not a dictionary"),
        (b"cnumpy\ndtype\n(Vu1\nVu1\nVu1\nVu1\ntR(I1\ntb.", "."),
    ],
)
def test_a_batch_that_is_hostile_or_broken_is_refused_by_name(tmp_path, content, words):
    for name in ("test_batch", *(f"data_batch_{n}" for n in range(1, 6))):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(Broken, match=f"data_batch_1 is not a complete CIFAR batch: .*({words})"):
        cifar.read(tmp_path)
    assert not Path("/tmp/scalewise-was-here").exists()


def test_a_folder_without_batches_is_refused(tmp_path):
    with pytest.raises(SpecError, match="has no CIFAR batches"):
        cifar.read(tmp_path)


@pytest.mark.parametrize("name", ["data_batch_1", "data_batch_3", "test_batch"])
def test_a_batch_that_is_missing_is_named(tmp_path, name):
    for each in ("test_batch", *(f"data_batch_{n}" for n in range(1, 6))):
        if each != name:
            cifar_batch(tmp_path / each, [1])
    for read in (cifar.read, lambda path: Source.of(str(path))):
        with pytest.raises(SpecError, match=f"has no {name}, a part of CIFAR-10"):
            read(tmp_path)
    assert f"has no {name}" in check_data_set(tmp_path, print, 1)["problems"][0]["problem"]


@pytest.mark.parametrize("empty", ["data_batch_1 to data_batch_5", "test_batch"])
def test_batches_without_an_image_are_refused_before_any_rank_starts(tmp_path, empty):
    for each in ("test_batch", *(f"data_batch_{n}" for n in range(1, 6))):
        cifar_batch(tmp_path / each, [] if each.startswith(empty[:4]) else [1])
    for read in (cifar.read, lambda path: Source.of(str(path))):
        with pytest.raises(SpecError, match=f"has no image in {empty}"):
            read(tmp_path)
    assert f"no image in {empty}" in check_data_set(tmp_path, print, 1)["problems"][0]["problem"]


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_are_read_plain_and_gzipped(tmp_path, zipped):
    images = idx_files(tmp_path, packed=zipped)
    found, labels = idx.read_split(tmp_path, "validation")
    assert (found == images).all()
    assert labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert kind_of(tmp_path) == "idx"


@pytest.mark.parametrize("content", [b"", b"abc", struct.pack(">4I", 0x0803, 9, 5, 4), bytes(99)])
def test_a_broken_idx_file_is_refused(tmp_path, content):
    idx_files(tmp_path)
    (tmp_path / idx.FILES["train images"]).write_bytes(content)
    with pytest.raises(SpecError, match="train-images-idx3-ubyte is not a complete MNIST idx file"):
        idx.read_split(tmp_path, "train")


def test_missing_and_unequal_idx_files_are_refused(tmp_path):
    idx_files(tmp_path)
    (tmp_path / idx.FILES["train labels"]).write_bytes(struct.pack(">2I", 0x0801, 1) + b"\0")
    with pytest.raises(SpecError, match="6 train images and 1 labels"):
        idx.read_split(tmp_path, "train")
    (tmp_path / idx.FILES["train labels"]).unlink()
    with pytest.raises(SpecError, match="has no train labels: train-labels-idx1-ubyte"):
        idx.read_split(tmp_path, "train")


@pytest.mark.parametrize(
    ("name", "head", "words"),
    [
        (
            "train images",
            (0x0804, 6, 5, 4),
            "MNIST idx file: its magic number is 0x804",
        ),
        (
            "validation labels",
            (0x0803, 6),
            "MNIST idx file: its magic number is 0x803",
        ),
        ("train images", (0x0803, 6, 0, 4), "not a complete MNIST idx file: its images are 4x0"),
        ("train labels", (0x0801, 0), "6 train images and 0 labels"),
        ("validation images", (0x0803, 5, 5, 4), "5 validation images and 6 labels"),
    ],
)
def test_the_head_of_an_idx_file_is_looked_at_before_any_rank_starts(tmp_path, name, head, words):
    idx_files(tmp_path)
    path = tmp_path / idx.FILES[name]
    path.write_bytes(struct.pack(f">{len(head)}I", *head) + path.read_bytes()[4 * len(head) :])
    with pytest.raises(SpecError, match=words):
        Source.of(str(tmp_path))
    assert check_data_set(tmp_path, print, 1)["problems"]


def test_idx_files_without_an_image_are_refused(tmp_path):
    idx_files(tmp_path, count=0)
    with pytest.raises(SpecError, match="0 train images and 0 labels"):
        Source.of(str(tmp_path))
    assert "0 train images" in check_data_set(tmp_path, print, 1)["problems"][0]["problem"]


def test_idx_images_keep_their_height_and_width_unless_a_run_gives_an_edge(tmp_path):
    idx_files(tmp_path)
    source = Source.of(str(tmp_path))
    assert source.shape == (1, 5, 4) and in_memory_data.read(source).transform.edge is None
    assert in_memory_data.read(Source.of(str(tmp_path), edge=5)).transform.edge == 5
    assert check_data_set(tmp_path, print, 1)["sizes"] == {"4x5": 12}


def test_idx_images_of_two_sizes_are_noted_and_brought_to_one(tmp_path):
    idx_files(tmp_path, height=4, held=7)
    assert in_memory_data.read(Source.of(str(tmp_path))).transform.edge == 4
    found = check_data_set(tmp_path, print, 1)
    assert found["sizes"] == {"4x4": 6, "4x7": 6} and found["problems"] == []
    note = "images have two sizes, train 4x4 and validation 4x7: a run resizes them to one"
    assert found["notes"] == [note]
    idx_files(tmp_path, height=5, held=7)
    with pytest.raises(SpecError, match="images of 4x5 and validation images of 4x7") as said:
        Source.of(str(tmp_path))
    assert "edge = 5" in said.value.hint
    assert Source.of(str(tmp_path), edge=6).shape == (1, 6, 6)


def test_classes_that_nobody_learns_are_told(tmp_path):
    idx_files(tmp_path)
    path = tmp_path / idx.FILES["train labels"]
    path.write_bytes(path.read_bytes()[:-6] + bytes([0, 0, 0, 1, 1, 4]))
    found = check_data_set(tmp_path, print, 1)
    assert [each["problem"] for each in found["problems"]] == [
        "class 2 is in validation and not in train"
    ]
    assert "classes without an image: 3 (1)" in found["notes"]
    for name in ("test_batch", *(f"data_batch_{n}" for n in range(1, 6))):
        cifar_batch(tmp_path / "cifar" / name, range(10) if name == "test_batch" else range(9))
    (problem,) = check_data_set(tmp_path / "cifar", print, 1)["problems"]
    assert problem["problem"] == "class 9 is in validation and not in train"
    names = {b"label_names": [b"thing"] * 10}
    (tmp_path / "cifar" / "batches.meta").write_bytes(pickle.dumps(names))
    with pytest.raises(Broken, match="it has no 10 label_names"):
        cifar.read(tmp_path / "cifar")


def test_tokens_are_mapped_and_not_loaded(tmp_path):
    values = np.array([5, 60_000, 7], np.uint16)
    values.tofile(tmp_path / "train.bin")
    values[:2].tofile(tmp_path / "val.bin")
    there = tokens.read(tmp_path)
    assert isinstance(there.train, np.memmap)
    assert there.train.tolist() == [5, 60_000, 7]
    assert there.validation.tolist() == [5, 60_000]
    assert (there.vocabulary, tokens.token_range(there.train)) == (None, (5, 60_000))
    assert kind_of(tmp_path) == kind_of(tmp_path / "val.bin") == "tokens"


def test_the_kind_of_a_stream_is_in_the_ending_of_its_own_name(tmp_path):
    np.array([5, 60_000], np.uint16).tofile(tmp_path / "train.bin")
    np.save(tmp_path / "val.npy", np.array([5, 7]))
    (tmp_path / "LOUD.BIN").write_bytes((tmp_path / "train.bin").read_bytes())
    assert tokens.read(tmp_path).validation.tolist() == [5, 7]
    assert tokens.read(tmp_path / "LOUD.BIN").train.tolist() == [5, 60_000]


@pytest.mark.parametrize("header", [b"(" * 60_000, b"(" * 5_000, b"{'descr': '|O', 'shape': (1,)}"])
def test_an_array_with_an_odd_header_is_refused_in_one_sentence(header, tmp_path):
    path = tmp_path / "train.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    with pytest.raises(Broken, match="cannot be read as tokens: ") as told:
        tokens.open_stream(path)
    assert "allow_pickle" not in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize("name", ["idx", "cifar"])
def test_a_file_that_may_not_be_read_is_not_called_damaged(name, tmp_path, monkeypatch):
    def closed(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", closed)
    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(ScalewiseError, match=r"cannot be read: Permission denied") as told:
        idx.read_array(tmp_path / "a", 1) if name == "idx" else cifar._unpickle(tmp_path / "a")
    assert "who may read it" in told.value.hint


@pytest.mark.parametrize("asks", ["exists", "is_dir"])
def test_a_place_that_may_not_be_looked_into_is_no_fault_of_the_model(asks, tmp_path, monkeypatch):
    def closed(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, asks, closed)
    for look in (kind_of, lambda path: Source.of(str(path))):
        with pytest.raises(SpecError, match=r"cannot (access|look into) .*: Permission denied"):
            look(tmp_path)


def test_numpy_files_and_texts_are_tokens_too(tmp_path):
    np.save(tmp_path / "t.npy", np.array([1, 2, 3], np.int32))
    (tmp_path / "t.txt").write_bytes("né".encode())
    assert tokens.read(tmp_path / "t.npy").train.tolist() == [1, 2, 3]
    text = tokens.read(tmp_path / "t.txt")
    assert (text.train.tolist(), text.vocabulary) == ([110, 195, 169], 256)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("t.bin", b"abc", "3 bytes are not a multiple of 2"),
        ("t.npy", b"junk that is no array", "does not begin as a numpy file does"),
        ("t.bin", b"", "it is empty"),
        ("t.npy", np.zeros(3), "float64"),
        ("t.npy", np.zeros((2, 2), int), r"shape \(2, 2\)"),
        ("t.npy", np.zeros(0, int), "holds no tokens"),
        ("t.npy", np.array([{}], object), "cannot be read as tokens"),
        ("t.txt", b"", "it is empty"),
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
        tokens.token_range(np.array([-1, 2]))
    with pytest.raises(SpecError, match=r"1,099,511,627,776, more than any vocabulary has"):
        tokens.token_range(np.array([0, 2**40]))
    with pytest.raises(SpecError, match="there are no tokens in"):
        tokens.read(tmp_path)


def test_the_file_that_is_too_short_for_a_sequence_is_named_before_anything_starts(tmp_path):
    for name, count in (("train.bin", 5000), ("val.bin", 10)):
        np.arange(1, count + 1, dtype=np.uint16).tofile(tmp_path / name)
    with pytest.raises(SpecError, match=r"val\.bin has 10 tokens, too few for sequences of 64"):
        Source.of(str(tmp_path))
    notes = check_data_set(tmp_path, print, 1)["notes"]
    assert notes[:2] == [
        "train: uint16, tokens from 1 to 5000",
        "validation: uint16, tokens from 1 to 10",
    ]
    assert notes[2].endswith(
        "val.bin has 10 tokens, too few for sequences of 64, the default length"
    )


@pytest.mark.parametrize("beside", ["index.json", "train.bin", "data_batch_1"])
def test_a_folder_with_train_has_images_whatever_lies_beside_it(tmp_path, beside):
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / beside).write_text('{"a": 1}')
    assert kind_of(tmp_path) == "images"


def test_what_is_no_data_set_is_refused_with_what_would_be(tmp_path):
    with pytest.raises(SpecError, match="not a data set that scalewise knows"):
        kind_of(tmp_path)
    with pytest.raises(SpecError, match="there is no data in"):
        kind_of(tmp_path / "nowhere")


def test_a_token_below_0_is_named_with_its_file(tmp_path):
    np.save(tmp_path / "t.npy", np.array([3, -2, 5]))
    with pytest.raises(SpecError, match=r"/t\.npy has a token -2, below 0"):
        tokens.token_range(tokens.open_stream(tmp_path / "t.npy"))
    assert (
        "t.npy has a token"
        in check_data_set(tmp_path / "t.npy", print, 1)["problems"][0]["problem"]
    )


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("imags", "did you mean 'images'?"),
        ("image/train", "did you mean 'images/train'?"),
        ("digit", "did you mean 'digits'?"),
        ("far away", "give a folder of images"),
        ("images/train/x", "give a folder of images"),
    ],
)
def test_a_path_that_leads_nowhere_is_answered_with_the_nearest(tmp_path, monkeypatch, asked, hint):
    monkeypatch.chdir(tmp_path)
    image_folder(tmp_path / "images")
    with pytest.raises(SpecError, match="there is no data") as refused:
        Source.of(asked)
    assert refused.value.hint.startswith(hint)
