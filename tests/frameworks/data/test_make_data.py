"""data make and data check: what they write, find, refuse, and leave behind."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from image_files import cifar_batch, idx_files, image_folder, picture, tiny_imagenet
from scalewise import datasets
from scalewise.errors import Broken, LaunchError, RecordError, SpecError
from scalewise.frameworks.data import make_data as making
from scalewise.frameworks.data.check_data import check_data_set
from scalewise.frameworks.data.image_folder import Listing
from scalewise.frameworks.data.make_data import Recipe, make_data_set, plan_images
from scalewise.frameworks.data.packed import Packed
from scalewise.frameworks.data.pixels import decode_image
from scalewise.frameworks.data.process_pool import map_unordered
from scalewise.report.formats import plain


def quiet(done, total):
    assert 0 < done <= total


def check(folder):
    return check_data_set(folder, quiet, processes=1)


def make(to, edge=16, **values):
    return make_data_set(Recipe(to, edge, **values), quiet, processes=1)


def test_made_up_images_are_an_image_folder_without_problems(tmp_path):
    assert make(tmp_path / "a", images=25, classes=10) == {
        "classes": 10, "edge": 16, "train": 25, "validation": 2,
    }  # fmt: skip
    found = check(tmp_path / "a")
    assert found["problems"] == []
    assert set(found["counts"]["train"].values()) == {2, 3}
    assert found["sizes"] == {"16x16": 27}
    assert found["notes"][0] == (
        "classes without a validation image: class-0002, class-0003, class-0004, class-0005, "
        "class-0006 … (8)"
    )


def test_made_up_images_can_be_learnt(tmp_path):
    make(tmp_path / "a", edge=32, images=60, classes=6)
    listing = Listing.of(tmp_path / "a")

    def images(split):
        return np.stack([decode_image(listing.path(split, n), 32) for n in range(len(split))])

    train = images(listing.train).astype(float)
    means = np.stack([train[listing.train.labels == n].mean(axis=0) for n in range(6)])
    held = images(listing.validation)
    nearest = ((held[:, None] - means[None]) ** 2).sum(axis=(2, 3, 4)).argmin(axis=1)
    assert (nearest == listing.validation.labels).all()
    assert len(np.unique(held, axis=0)) == len(held)


def test_the_same_seed_makes_the_same_images(tmp_path):
    make(tmp_path / "a", images=4, classes=2, seed=1)
    make(tmp_path / "b", images=4, classes=2, seed=1)
    make(tmp_path / "c", images=4, classes=2, seed=2)
    one, same, other = (
        (tmp_path / name / "train/class-0001/000001.jpg").read_bytes() for name in "abc"
    )
    assert one == same != other


def test_tiny_imagenet_becomes_a_folder_of_one_size(tmp_path):
    tiny_imagenet(tmp_path / "tiny")
    answer = make(tmp_path / "a", edge=80, source=tmp_path / "tiny")
    assert answer == {"classes": 2, "edge": 80, "train": 6, "validation": 2}
    assert (tmp_path / "a/val/n02/val_0.jpg").is_file()
    assert check(tmp_path / "a")["sizes"] == {"80x80": 8}


@pytest.mark.parametrize(("like", "train", "held"), [("tiny-224", 500, 50), ("micro-224", 60, 6)])
def test_a_likeness_is_as_large_as_what_it_is_like(tmp_path, like, train, held):
    plan = plan_images(Recipe(tmp_path, like=like))
    assert len(plan.classes) == 200
    assert len(plan.splits["train"]) == 200 * train
    assert len(plan.splits["validation"]) == 200 * held


def test_the_lab_and_the_worker_know_the_same_likenesses():
    assert sorted(datasets.PRESETS) == sorted(making.KNOWN_SIZES)


def test_a_part_of_a_folder_is_drawn_by_the_seed(tmp_path):
    image_folder(tmp_path / "all", classes=("a", "b", "c"), train=5, val=2)
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "all/train/a/a_0.png")
    make(tmp_path / "some", source=tmp_path / "all", images=8, classes=2, seed=1)
    listing = Listing.of(tmp_path / "some")
    assert listing.classes == ("a", "b")
    assert listing.train.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    plans = [
        plan_images(Recipe(tmp_path, source=tmp_path / "all", images=8, seed=seed))
        for seed in (1, 1, 2)
    ]
    assert plans[0] == plans[1] != plans[2]


def test_two_files_of_one_name_both_stay(tmp_path):
    image_folder(tmp_path / "all", train=5)
    picture(tmp_path / "all/train/ant/ant_0.png")
    make(tmp_path / "same", source=tmp_path / "all")
    names = sorted(path.name for path in (tmp_path / "same/train/ant").iterdir())
    assert names == ["ant_0-0.jpg", "ant_0-1.jpg", *(f"ant_{n}.jpg" for n in range(1, 5))]


@pytest.mark.parametrize(
    "files",
    [
        ["x-1.jpg", "x.jpg", "x.png"],
        ["x-0.jpg", "x-0-.jpg", "x-1.jpg", "x.jpg", "x.png", "x.webp"],
        ["X.jpg", "x.jpg", "X-1.png"],
        ["a/x.jpg", "b/x.jpg", "b/x-1.jpg", "x.png"],
    ],
)
def test_no_image_is_written_over_another(tmp_path, files):
    image_folder(tmp_path / "all", train=1)
    for number, name in enumerate(files):
        picture(tmp_path / "all/train/ant" / name, seed=number)
    said = make(tmp_path / "same", source=tmp_path / "all")
    names = [path.name for path in (tmp_path / "same/train/ant").iterdir()]
    assert len({name.lower() for name in names}) == len(files) + 1
    listing = Listing.of(tmp_path / "same")
    assert (said["train"], said["validation"]) == (len(listing.train), len(listing.validation))


@pytest.mark.parametrize("how", [{}, {"source": "all"}, {"source": "all", "packed": True}])
def test_a_set_that_nobody_could_train_on_is_not_made(tmp_path, how):
    image_folder(tmp_path / "all", ("a", "b", "c"), train=5)
    values = {**how, "source": tmp_path / how["source"]} if how else {"classes": 3}
    with pytest.raises(SpecError, match="2 images are too few for 3 classes") as refused:
        make(tmp_path / "few", images=2, **values)
    assert "--images 3" in refused.value.hint
    assert not (tmp_path / "few").exists()
    assert make(tmp_path / "few", images=3, **values)["train"] == 3


def test_classes_without_a_validation_image_are_not_taken_alone(tmp_path):
    image_folder(tmp_path / "all", ("a", "b"))
    shutil.rmtree(tmp_path / "all/val/a")
    with pytest.raises(SpecError, match="no validation image in the first class of"):
        make(tmp_path / "few", source=tmp_path / "all", classes=1)
    assert make(tmp_path / "few", source=tmp_path / "all")["validation"] == 2


def test_what_a_set_is_made_of_is_there_and_a_folder_of_images(tmp_path):
    image_folder(tmp_path / "images")
    make(tmp_path / "packed", source=tmp_path / "images", packed=True)
    cifar_batch(tmp_path / "cifar" / "data_batch_1", [1])
    (tmp_path / "text.txt").write_text("words")
    for name, words in {
        "packed": "packed is packed data, and only a folder of images can be converted",
        "cifar": "cifar is cifar data, and only a folder of images can be converted",
        "text.txt": "text.txt is tokens data, and only a folder of images can be converted",
        "image": "there is no data in .*/image$",
    }.items():
        with pytest.raises(SpecError, match=words) as refused:
            make(tmp_path / "other", source=tmp_path / name)
        assert refused.value.hint
    assert f"did you mean {str(tmp_path / 'images')!r}?" == refused.value.hint


def test_a_jpeg_of_the_right_size_is_copied_byte_by_byte(tmp_path):
    image_folder(tmp_path / "all", width=16, height=16)
    make(tmp_path / "same", source=tmp_path / "all")
    name = "train/ant/ant_1.jpg"
    assert (tmp_path / "same" / name).read_bytes() == (tmp_path / "all" / name).read_bytes()


def test_several_processes_make_and_check_what_one_does(tmp_path):
    recipe = Recipe(tmp_path / "one", 16, images=200, classes=4)
    make_data_set(recipe, quiet, processes=1)
    told = []
    parallel = Recipe(tmp_path / "two", 16, images=200, classes=4)
    make_data_set(parallel, lambda *far: told.append(far), processes=2)
    assert told[-1] == (220, 220)
    assert check_data_set(tmp_path / "two", quiet, 2)["counts"] == check(tmp_path / "one")["counts"]
    name = "train/class-0003/000049.jpg"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("packed", [False, True])
def test_a_broken_image_ends_it_by_name_and_leaves_nothing(tmp_path, packed):
    image_folder(tmp_path / "all")
    (tmp_path / "all/train/bee/bee_1.jpg").write_bytes(b"")
    with pytest.raises(Broken, match=r"bee_1\.jpg cannot be read: it is empty"):
        make(tmp_path / "a", source=tmp_path / "all", packed=packed)
    assert [path.name for path in tmp_path.iterdir()] == ["all"]


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(SpecError, match="a exists already"):
        make(tmp_path / "a", images=4, classes=2)
    (tmp_path / "b c.draft").mkdir()
    with pytest.raises(
        SpecError, match=r"b c\.draft exists: another process is writing it"
    ) as told:
        make(tmp_path / "b c", images=4, classes=2)
    assert told.value.hint.endswith(f"rm -r '{tmp_path / 'b c.draft'}'")
    assert (tmp_path / "b c.draft").is_dir()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "no source and no size for the data set"),
        ({"images": 5}, "no source and no size for the data set"),
        ({"source": "nowhere"}, "there is no data in .*/nowhere"),
        ({"source": "all", "classes": 3}, "all has 2 classes, not 3"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path, values, words):
    image_folder(tmp_path / "all")
    if "source" in values:
        values["source"] = tmp_path / values["source"]
    with pytest.raises(SpecError, match=words):
        make(tmp_path / "a", **values)
    assert [path.name for path in tmp_path.iterdir()] == ["all"]


def test_a_disk_that_is_full_is_said_in_a_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(making.packed, "write_block", full)
    with pytest.raises(RecordError, match=r"cannot write .*/a: No space left on device"):
        make(tmp_path / "a", images=4, classes=2, packed=True)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small_is_known_before(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(RecordError, match=r"needs 3\.2 MiB, and the disk has 0\.0 MiB left"):
        make(tmp_path / "a", edge=224, images=20, classes=2, packed=True)


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match=r"cannot write .*/file/a: Not a directory"):
        make(tmp_path / "file" / "a", images=4, classes=2)


@pytest.fixture
def odd(tmp_path):
    """A folder with one of everything: sizes, modes, broken and empty files."""
    root = image_folder(tmp_path / "odd ones", classes=("ant", "bee", "cat"))
    picture(root / "train/ant/grey.png", 64, 64, mode="L")
    picture(root / "train/ant/clear.png", mode="RGBA")
    picture(root / "train/ant/print.jpg", mode="CMYK")
    whole = (root / "train/bee/bee_0.jpg").read_bytes()
    (root / "train/bee/bee_0.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "val/bee/bee_1.jpg").write_bytes(b"")
    shutil.rmtree(root / "val/cat")
    return root


def test_check_names_broken_files_and_notes_what_is_odd(odd):
    found = check(odd)
    assert [os.path.relpath(each["path"], odd) for each in found["problems"]] == [
        "train/bee/bee_0.jpg", "val/bee/bee_1.jpg",
    ]  # fmt: skip
    assert found["sizes"] == {"40x30": 13, "64x64": 1}
    assert found["modes"] == {"RGB": 11, "L": 1, "RGBA": 1, "CMYK": 1}
    assert found["formats"] == {"JPEG": 12, "PNG": 2}
    assert found["counts"]["train"] == {"ant": 6, "bee": 3, "cat": 3}
    assert found["notes"] == [
        "classes without a validation image: cat (1)",
        "images have 2 sizes and are cropped to squares",
        "images that are not RGB and will be converted: 3",
    ]


def test_check_looks_at_the_files_of_a_folder_that_cannot_be_trained_on(odd):
    (odd / "train" / "empty").mkdir()
    found = check(odd)
    words = [each["problem"] for each in found["problems"]]
    assert words[0] == "class empty has no image in train"
    assert re.search(r"bee_0\.jpg cannot be read: .*trunc", words[1], re.I)
    assert found["counts"]["train"]["empty"] == 0


def test_check_says_that_a_class_only_validates(odd):
    picture(odd / "val/dog/dog.jpg")
    assert "class dog is in val and not in train" in check(odd)["problems"][0]["problem"]


def test_check_finds_a_changed_byte_of_packed_images(tmp_path):
    make(tmp_path / "a", images=20, classes=2, packed=True)
    assert check(tmp_path / "a")["problems"] == []
    with (tmp_path / "a/train-00000.bin").open("r+b") as file:
        file.seek(5000)
        byte = file.read(1)[0]
        file.seek(5000)
        file.write(bytes([byte ^ 1]))
    (problem,) = check(tmp_path / "a")["problems"]
    assert problem["path"].endswith("a/train-00000.bin")
    assert "images 0 to 19 are not what was written" in problem["problem"]
    os.truncate(tmp_path / "a/validation-00000.bin", 10)
    assert "it has 10 bytes" in check(tmp_path / "a")["problems"][0]["problem"]


def test_packed_images_of_made_up_ones_have_the_labels_of_the_folder(tmp_path):
    make(tmp_path / "a", images=20, classes=2, packed=True)
    make(tmp_path / "b", images=20, classes=2)
    assert Packed.of(tmp_path / "a").train.labels.tolist() == [0] * 10 + [1] * 10
    assert Packed.of(tmp_path / "a").classes == Listing.of(tmp_path / "b").classes


def test_check_says_which_of_two_validation_folders_is_read(tmp_path):
    root = image_folder(tmp_path / "a", ("ant", "bee"))
    (root / "validation" / "ant").mkdir(parents=True)
    (root / "validation" / "notes.txt").write_text("x")
    assert check(root)["notes"] == ["val is used for validation, validation is ignored"]


def test_check_notes_what_is_not_read_and_a_single_class(tmp_path):
    root = image_folder(tmp_path / "a", ("ant",))
    picture(root / "train/stray.jpg")
    picture(root / "val/other.png")
    picture(root / "train/ant/old.bmp")
    for name in ("train/ant/Thumbs.db", "train/ant/.hidden", "val/ant/notes.TXT", "val/README"):
        (root / name).write_text("x")
    found = check(root)
    assert found["problems"] == [] and found["counts"]["train"] == {"ant": 3}
    assert found["notes"][0] == "there is only 1 class: nothing can be learned"
    assert found["notes"][1] == (
        "images outside of class folders, which are not read: train/stray.jpg, val/other.png (2)"
    )
    told = found["notes"][2].removeprefix("files that are not read, by their ending: ")
    assert sorted(told.split(", ")) == [".bmp (1)", ".db (1)", ".txt (1)", "none (1)"]


def test_one_is_counted_as_one():
    found = datasets.CheckedDataset("images", "a", {"train": {"ant": 1}}, {}, {}, {}, [], [])
    assert "  train: 1 image in 1 class, 1 each" in str(found)
    made = datasets.MadeDataset(Path("a"), 1, 3, 1, 8)
    assert str(made) == "a  (1 class, 3 training and 1 validation image of 8 × 8)"


def test_check_reports_a_pipe_and_does_not_wait_for_it(tmp_path):
    root = image_folder(tmp_path / "a")
    os.mkfifo(root / "train/ant/d.jpg")
    (problem,) = check(root)["problems"]
    assert problem["problem"].endswith("d.jpg cannot be read: it is not a file")


def test_check_knows_the_other_kinds(tmp_path):
    (tmp_path / "idx").mkdir()
    idx_files(tmp_path / "idx", packed=True)
    assert check(tmp_path / "idx")["counts"]["train"] == {"0": 2, "1": 2, "2": 2}
    for n in range(1, 6):
        cifar_batch(tmp_path / "cifar" / f"data_batch_{n}", range(10))
    cifar_batch(tmp_path / "cifar" / "test_batch", [3])
    assert check(tmp_path / "cifar")["counts"]["validation"]["3"] == 1
    (tmp_path / "cifar" / "data_batch_4").write_bytes(b"x")
    assert "data_batch_4 is not a complete" in check(tmp_path / "cifar")["problems"][0]["problem"]
    np.array([1, 9], np.uint16).tofile(tmp_path / "t.bin")
    found = check(tmp_path / "t.bin")
    assert found["counts"] == {"train": {"tokens": 2}}
    assert found["notes"][0] == "train: uint16, tokens from 1 to 9"


def test_the_command_makes_and_checks(scalewise):
    code, out, _ = scalewise("data", "make", "a b", "--images", 8, "--classes", 2, "--edge", 16)
    assert code == 0
    assert out == "a b  (2 classes, 8 training and 1 validation image of 16 × 16)\n"
    code, out, _ = scalewise("data", "check", "a b", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["schema"], found["kind"], found["problems"]) == (1, "images", [])
    code, out, _ = scalewise("data", "make", "p", "--packed", "--from", "a b", "--edge", 8)
    assert (code, out.split()[0]) == (0, "p")
    os.truncate("p/train-00000.bin", 3)
    code, out, err = scalewise("data", "check", "p")
    assert code == 1 and "error" not in err
    assert "problem: p/train-00000.bin is not complete: it has 3 bytes instead of 1,536" in out


def test_the_command_times_a_loader(scalewise):
    scalewise("data", "make", "a b", "--images", 8, "--classes", 2, "--edge", 16)
    next(Path("a b/train").iterdir(), Path()).joinpath("broken.jpg").write_bytes(b"")
    timed = ("data", "bench", "a b", "--edge", 16, "--batch", 4, "--seconds", 0.1)
    code, out, err = scalewise(*timed, "--workers", "0,1", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["kind"], found["samples"], found["shape"]) == ("images", 9, [3, 16, 16])
    assert [row["workers"] for row in found["rates"]] == [0, 1]
    for row in found["rates"]:
        rate = row["rate"]
        assert 0 < rate["low"] <= rate["value"] <= rate["high"] and row["first"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["make", "a", "--like", "nano-224"], "--like must be one of micro-224, tiny-224"),
        (["make", "a", "--images", "0", "--classes", "2"], "--images must be a whole number"),
        (["make", "a", "--images", "2", "--classes", "3"], "2 images are too few for 3 classes"),
        (["make", "a", "--like", "tiny-224", "--edge", "5000"], "from 1 to 4,096"),
        (["make", "a", "--like", "tiny-224", "--images", "100"], "100 images are too few for 200"),
        (
            ["make", "a", "--images", "2000000000", "--classes", "2"],
            "a synthetic set has at most 10,000,000 images",
        ),
        (["make", "a", "--from", "nowhere"], "nowhere"),
        (["make", "", "--images", "4", "--classes", "2"], "the folder to make needs a name"),
        (["make", "a"], "no source and no size for the data set"),
        (["check", "nowhere"], "there is no data in nowhere"),
        (["bench", "nowhere"], "there is no data nowhere"),
        (["bench", "digits", "--workers", "1,many"], "--workers takes whole numbers"),
        (["bench", "digits", "--seconds", "0"], "--seconds must be a number above 0"),
        (["bench", "digits", "--augment", "turn"], "augment must be one of none, flip, crop"),
    ],
)
def test_the_command_refuses_in_a_sentence(scalewise, words, said):
    code, out, err = scalewise("data", *words)
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and said in err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["make", "a", "--images", "0", "--classes", "2"], "for example --images 1\n"),
        (["make", "a", "--images", "2", "--classes", "3"], "--images 3"),
        (["bench", "digits", "--augment", "blur"], "for example --augment none\n"),
        (["bench", "digits", "--seconds", "0"], "for example --seconds 5"),
    ],
)
def test_the_hints_of_the_command_can_be_typed(scalewise, words, hint):
    _, _, err = scalewise("data", *words)
    assert "hint: " in err and hint in err


def test_ctrl_c_leaves_neither_a_folder_nor_a_process(tmp_path):
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heeds}; from scalewise.cli import main; main()"  # Also in a shell's background.
    words = ["data", "make", "big", "--images", "200000", "--classes", "2", "--edge", "16"]
    started = subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=tmp_path, stderr=subprocess.PIPE
    )
    waited = time.monotonic()
    while not list(tmp_path.glob("big.draft/train/*/*.jpg")):
        assert started.poll() is None and time.monotonic() - waited < 60
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_killed_leaves_no_process_behind(tmp_path, how):
    code = "from scalewise.cli import main; main()"
    words = ["data", "make", "big", "--images", "200000", "--classes", "2", "--edge", "16"]
    started = subprocess.Popen([sys.executable, "-c", code, *words], cwd=tmp_path)
    waited = time.monotonic()
    while not list(tmp_path.glob("big.draft/train/*/*.jpg")):
        assert started.poll() is None and time.monotonic() - waited < 60
        time.sleep(0.1)
    (worker,) = psutil.Process(started.pid).children()
    started.send_signal(how)
    started.wait(60)
    psutil.wait_procs([worker], timeout=60)
    assert not worker.is_running() and list(tmp_path.iterdir()) == []


def _halved(number):
    if number == 3:
        raise SpecError("three", hint="take two")
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return number / 2


def test_what_a_process_raises_is_raised_and_one_that_dies_is_said():
    assert sorted(map_unordered(_halved, [2, 8, 16], 2)) == [(0, 1.0), (1, 4.0), (2, 8.0)]
    with pytest.raises(SpecError, match="three") as raised:
        list(map_unordered(_halved, [2, 3], 2))
    assert raised.value.hint == "take two"
    with pytest.raises(LaunchError, match="was killed"):
        list(map_unordered(_halved, [2, 4], 2))


def test_many_problems_are_cut_and_all_are_in_the_json():
    problems = [{"path": str(n), "problem": f"{n} is broken"} for n in range(30)]
    found = datasets.CheckedDataset("images", "a", {}, {}, {}, {}, problems, [])
    assert str(found).splitlines()[-1] == "  … and 10 problems more; the JSON output has all"
    assert len(plain(found)["problems"]) == 30
