"""Image folders are listed once, as ImageFolder would, however odd they are."""

import os
import pickle
import shutil
import tempfile
from pathlib import Path

import pytest

from image_files import image_folder, picture, tiny_imagenet
from scalewise.errors import SpecError
from scalewise.frameworks.data.check_data import check_data_set
from scalewise.frameworks.data.image_folder import Listing
from scalewise.frameworks.data.pixels import decode_image


def empty_files(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()


def names(split):
    return [split.name(n) for n in range(len(split))]


@pytest.fixture
def plain(tmp_path):
    for part in ("train", "val"):
        empty_files(tmp_path / part / "bee", ["b2.JPG", "b1.jpeg", "note.txt", ".hidden.jpg"])
        empty_files(tmp_path / part / "Ant", ["a.png", "c.WebP", "b.Jpeg"])
    return tmp_path


def test_classes_and_files_are_in_the_order_of_their_names(plain):
    listing = Listing.of(plain)
    assert listing.classes == ("Ant", "bee")
    files = ["train/Ant/a.png", "train/Ant/b.Jpeg", "train/Ant/c.WebP"]
    assert names(listing.train) == [*files, "train/bee/b1.jpeg", "train/bee/b2.JPG"]
    assert listing.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert listing.path(listing.train, 4) == str(plain / "train/bee/b2.JPG")
    assert len(listing.validation) == 5 and not listing.val_split_from_train


def test_a_listing_survives_as_bytes(plain):
    listing = Listing.of(plain)
    for copy in (Listing.from_bytes(listing.to_bytes()), pickle.loads(pickle.dumps(listing))):
        assert (copy.root, copy.classes) == (listing.root, listing.classes)
        assert not copy.val_split_from_train
        for ours, theirs in ((listing.train, copy.train), (listing.validation, copy.validation)):
            assert names(ours) == names(theirs)
            assert ours.labels.tolist() == theirs.labels.tolist()


def test_a_listing_from_bytes_touches_no_file(plain):
    content = Listing.of(plain).to_bytes()
    shutil.rmtree(plain / "train")
    assert len(Listing.from_bytes(content).train) == 5


def test_a_listing_can_be_used_from_anywhere(plain, monkeypatch):
    monkeypatch.chdir(plain.parent)
    listing = Listing.of(plain.name)
    monkeypatch.chdir("/")
    assert os.path.isfile(listing.path(listing.train, 0))


def test_spaces_and_names_that_are_no_text_survive(tmp_path):
    root = image_folder(tmp_path / "a folder", classes=("a class", "b"), train=1, val=1)
    odd = os.fsdecode(b"\xff\xfe.jpg")
    shutil.copy(root / "train/b/b_0.jpg", root / "train/b" / odd)
    listing = Listing.from_bytes(Listing.of(root).to_bytes())
    assert [decode_image(listing.path(listing.train, n), 8).shape for n in range(3)] == [
        (8, 8, 3)
    ] * 3
    assert listing.train.name(2) == f"train/b/{odd}"


def test_validation_may_have_its_long_name_and_test_is_never_read(plain):
    (plain / "val").rename(plain / "validation")
    empty_files(plain / "test" / "unknown", ["x.jpg"])
    listing = Listing.of(plain)
    assert listing.validation.name(0) == "validation/Ant/a.png"
    assert listing.classes == ("Ant", "bee")


def test_without_a_val_folder_every_fifth_image_validates(tmp_path):
    empty_files(tmp_path / "train" / "a", [f"{n}.jpg" for n in range(10)])
    listing = Listing.of(tmp_path)
    assert listing.val_split_from_train
    assert names(listing.validation) == ["train/a/4.jpg", "train/a/9.jpg"]
    assert len(listing.train) == 8


def test_a_class_that_is_missing_or_empty_in_val_keeps_its_number(plain):
    shutil.rmtree(plain / "val" / "Ant")
    assert Listing.of(plain).validation.labels.tolist() == [1, 1]
    (plain / "val" / "Ant").mkdir()
    assert Listing.of(plain).validation.labels.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda root: (root / "train" / "cat").mkdir(), "class cat has no image in .*/train"),
        (
            lambda root: empty_files(root / "val" / "cat", ["a.jpg"]),
            "class cat is in val and not in train",
        ),
        (lambda root: shutil.rmtree(root / "train"), "has no folder train"),
        (lambda root: shutil.rmtree(root), "has no folder train"),
        (
            lambda root: (shutil.rmtree(root / "train"), empty_files(root / "train", ["a.jpg"])),
            "train has no class folders",
        ),
        (
            lambda root: [shutil.rmtree(root / "val" / name) for name in ("Ant", "bee")],
            "val has no class folders",
        ),
        (
            lambda root: (
                [(root / "val" / n).unlink() for n in ("bee/b2.JPG", "bee/b1.jpeg")]
                + [shutil.rmtree(root / "val" / "Ant")]
            ),
            "val has no images",
        ),
    ],
)
def test_a_folder_that_cannot_be_trained_on_is_refused_in_a_sentence(plain, change, words):
    change(plain)
    with pytest.raises(SpecError, match=words) as raised:
        Listing.of(plain)
    assert raised.value.hint


def test_links_are_followed_and_circles_are_not(plain, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    empty_files(elsewhere / "more", ["z.jpg"])
    (plain / "train" / "bee" / "linked").symlink_to(elsewhere / "more")
    (plain / "train" / "bee" / "up").symlink_to("..")
    (plain / "train" / "bee" / "self").symlink_to(".")
    (elsewhere / "more" / "back").symlink_to(plain / "train" / "bee")
    (plain / "train" / "again").symlink_to(plain)
    (plain / "train" / "bee" / "gone").symlink_to("nowhere")
    (plain / "train" / "bee" / "snake").symlink_to("snake")
    (plain / "train" / "worm").symlink_to("worm")
    listing = Listing.of(plain)
    assert listing.classes == ("Ant", "bee")
    assert names(listing.train)[3:] == [
        "train/bee/b1.jpeg", "train/bee/b2.JPG", "train/bee/linked/z.jpg",
    ]  # fmt: skip


def test_images_below_a_class_folder_belong_to_it(plain):
    empty_files(plain / "train" / "Ant" / "images", ["x.jpg"])
    assert "train/Ant/images/x.jpg" in names(Listing.of(plain).train)


def test_tiny_imagenet_is_read_as_it_was_downloaded(tmp_path):
    listing = Listing.of(tiny_imagenet(tmp_path))
    assert listing.classes == ("n01", "n02")
    assert len(listing.train) == 6
    assert names(listing.validation) == ["val/images/val_1.JPEG", "val/images/val_0.JPEG"]
    assert listing.validation.labels.tolist() == [0, 1]


@pytest.mark.parametrize("left", [False, True])
def test_tiny_imagenet_sorted_into_classes_needs_no_annotations(tmp_path, left):
    tiny_imagenet(tmp_path)
    for number, name in enumerate(("n02", "n01")):
        (tmp_path / "val" / name).mkdir()
        (tmp_path / f"val/images/val_{number}.JPEG").rename(
            tmp_path / f"val/{name}/val_{number}.JPEG"
        )
    if not left:
        (tmp_path / "val" / "images").rmdir()
    assert names(Listing.of(tmp_path).validation) == ["val/n01/val_1.JPEG", "val/n02/val_0.JPEG"]


def test_blank_lines_of_annotations_are_passed_over(tmp_path):
    path = tiny_imagenet(tmp_path) / "val" / "val_annotations.txt"
    path.write_text("\n" + path.read_text().replace("\n", "\n \n\n"))
    assert len(Listing.of(tmp_path).validation) == 2
    path.write_text("\n")
    with pytest.raises(SpecError, match="names no image"):
        Listing.of(tmp_path)


def test_an_annotation_of_an_unknown_class_is_refused(tmp_path):
    tiny_imagenet(tmp_path)
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99\t0\t0\t1\t1\n")
    with pytest.raises(SpecError, match=r"names a class that train does not have.*n99"):
        Listing.of(tmp_path)


def test_an_image_that_is_annotated_twice_is_refused(tmp_path):
    path = tiny_imagenet(tmp_path) / "val" / "val_annotations.txt"
    path.write_text(path.read_text() + "val_0.JPEG\tn01\t0\t0\t1\t1\n")
    with pytest.raises(SpecError, match=r"names val_0\.JPEG twice"):
        Listing.of(tmp_path)


def test_an_image_without_an_annotation_is_noted(tmp_path):
    picture(tiny_imagenet(tmp_path) / "val" / "images" / "val_2.JPEG")
    notes = check_data_set(tmp_path, print, 1)["notes"]
    assert "images outside of class folders, which are not read: val/images/val_2.JPEG (1)" in notes


def test_annotations_that_are_missing_are_asked_about(tmp_path):
    (tiny_imagenet(tmp_path) / "val" / "val_annotations.txt").unlink()
    with pytest.raises(SpecError, match="class images is in val and not in train") as told:
        Listing.of(tmp_path)
    assert "val_annotations.txt" in told.value.hint


def test_files_are_listed_without_asking_about_any_of_them(plain, monkeypatch):
    asked = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, *a, **k: asked.append(path) or stat(path, *a, **k))
    Listing.of(plain)
    assert not [path for path in asked if str(path).lower().endswith((".jpg", ".jpeg", ".png"))]


@pytest.fixture
def in_memory():
    """A folder on a disk of memory, if there is one: a hundred thousand files take a second."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def test_a_hundred_thousand_files_are_listed(in_memory):
    for n in range(100):
        folder = in_memory / "train" / f"class {n:03d}"
        folder.mkdir(parents=True)
        here = os.open(folder, os.O_RDONLY)
        for k in range(1000):
            os.mknod(f"image_{k:04d}.JPEG", dir_fd=here)
        os.close(here)
    listing = Listing.of(in_memory)
    assert len(listing.train) + len(listing.validation) == 100_000
    content = listing.to_bytes()
    assert len(content) < 2_000_000
    assert Listing.from_bytes(content).train.name(79_999) == listing.train.name(79_999)
