"""One image file: whatever it is, it comes out as a square of RGB, or is said to be broken."""

import io
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from image_files import photograph, picture, scene
from scalewise.errors import Broken, ScalewiseError
from scalewise.frameworks.data import pixels
from scalewise.frameworks.data.pixels import Crop, decode_image


def jpeg(width, height, seed=0, quality=90):
    file = io.BytesIO()
    Image.fromarray(scene(width, height, seed)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def in_full(content, edge):
    """Decode every pixel, then resize the middle: what ours is held against."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = left, top, left + side, top + side
    return np.asarray(image.resize((edge, edge), Image.Resampling.BILINEAR, box=box)).astype(int)


@pytest.mark.parametrize("size", [(32, 32), (20, 20), (45, 33), (40, 60)])
def test_an_image_that_is_hardly_shrunk_is_exactly_what_full_decoding_gives(size):
    content = jpeg(*size)
    assert (decode_image(content, 32) == in_full(content, 32)).all()


def test_the_middle_is_that_of_resizing_the_whole_and_cutting_it(tmp_path):
    path = picture(tmp_path / "a.png", 96, 64)
    small = Image.open(path).resize((48, 32), Image.Resampling.BILINEAR)
    wanted = np.asarray(small.crop((8, 0, 40, 32))).astype(int)
    assert np.abs(decode_image(path, 32) - wanted).max() <= 1


@pytest.mark.parametrize("size", [(500, 375), (224, 300), (335, 224), (452, 470)])
@pytest.mark.parametrize("quality", [75, 97])
def test_a_shrunk_jpeg_is_within_the_stated_tolerance(size, quality):
    file = io.BytesIO()
    Image.fromarray(photograph(*size)).save(file, "JPEG", quality=quality)
    off = np.abs(decode_image(file.getvalue(), 112) - in_full(file.getvalue(), 112))
    assert off.any()
    assert off.mean() <= 2
    assert np.percentile(off, 99) <= 8


def test_an_image_of_the_right_size_is_returned_untouched():
    whole = np.asarray(Image.open(io.BytesIO(jpeg(32, 32))))
    assert (decode_image(jpeg(32, 32), 32) == whole).all()


def test_pixels_are_written_where_they_are_wanted():
    batch = np.zeros((3, 32, 32, 3), np.uint8)
    assert decode_image(jpeg(40, 40), 32, out=batch[1]).base is batch
    assert batch[1].any()
    assert not batch[0].any() and not batch[2].any()


@pytest.mark.parametrize("wrong", [np.zeros((8, 9, 3), np.uint8), np.zeros((8, 8, 3))])
def test_a_place_that_does_not_fit_is_not_blamed_on_the_file(wrong):
    with pytest.raises(ValueError, match="cannot take an image of edge 8") as raised:
        decode_image(jpeg(8, 8), 8, out=wrong)
    assert not isinstance(raised.value, ScalewiseError)


MODES = {
    "a.jpg": ["RGB", "L", "CMYK", "1"],
    "a.png": ["RGB", "L", "RGBA", "P", "1", "LA"],
    "a.webp": ["RGB", "L", "RGBA", "CMYK", "P", "1", "LA"],
}


@pytest.mark.parametrize(
    ("name", "mode"), [(name, mode) for name, modes in MODES.items() for mode in modes]
)
def test_every_mode_comes_out_as_rgb(tmp_path, name, mode):
    found = decode_image(picture(tmp_path / name, 32, 32, mode=mode), 32)
    assert found.shape == (32, 32, 3)
    assert found.dtype == np.uint8
    wanted = np.asarray(Image.fromarray(scene(32, 32)).convert(mode).convert("RGB"))
    assert np.abs(found.astype(int) - wanted).mean() < 8


def test_a_png_with_another_name_is_known_by_its_bytes(tmp_path):
    picture(tmp_path / "a.png", 32, 32)
    (tmp_path / "a.png").rename(tmp_path / "a.jpg")
    assert (decode_image(tmp_path / "a.jpg", 32) == scene(32, 32)).all()


def test_a_format_that_is_not_listed_is_read_all_the_same(tmp_path):
    picture(tmp_path / "a.bmp", 32, 32, mode="RGB")
    assert (decode_image(tmp_path / "a.bmp", 32) == scene(32, 32)).all()


def test_transparent_pixels_lie_on_white(tmp_path):
    clear = np.zeros((8, 8, 4), np.uint8)
    clear[:4, :, 3] = 255
    Image.fromarray(clear).save(tmp_path / "a.png")
    found = decode_image(tmp_path / "a.png", 8)
    assert (found[:4] == 0).all()
    assert (found[4:] == 255).all()


def test_transparent_pixels_of_sixteen_bits_lie_on_white_too(tmp_path):
    deep = np.full((8, 8), 40_000, np.uint16)
    deep[4:] = 300
    Image.fromarray(deep).save(tmp_path / "a.png", transparency=300)
    found = decode_image(tmp_path / "a.png", 8)
    assert (found[:4] == 40_000 >> 8).all()
    assert (found[4:] == 255).all()


def test_a_program_is_no_image(tmp_path):
    Image.fromarray(scene(8, 8)).save(tmp_path / "a.eps")
    with pytest.raises(Broken, match="it is not an image"):
        decode_image(tmp_path / "a.eps", 8)


def test_sixteen_bits_become_the_upper_eight(tmp_path):
    deep = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    Image.fromarray(deep).save(tmp_path / "a.png")
    assert (decode_image(tmp_path / "a.png", 8)[:, :, 0] == deep >> 8).all()


def test_the_orientation_that_a_camera_noted_is_ignored():
    plain, turned = io.BytesIO(), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(scene(32, 32)).save(plain, "JPEG")
    Image.fromarray(scene(32, 32)).save(turned, "JPEG", exif=exif)
    assert (decode_image(turned.getvalue(), 32) == decode_image(plain.getvalue(), 32)).all()


BAD = {
    "truncated": jpeg(200, 200)[:-400],
    "headless": jpeg(200, 200)[:100],
    "empty": b"",
    "no image": b"<html>404 Not Found</html>",
    "torn": b"\x89PNG\r\n\x1a\n" + bytes(60),
    "webp": b"RIFF\x10\x00\x00\x00WEBPVP8 " + bytes(9),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_broken_file_is_one_error_with_its_path(tmp_path, content):
    path = tmp_path / "bad one.jpg"
    path.write_bytes(content)
    with pytest.raises(Broken, match=r"bad one\.jpg cannot be read: \w") as raised:
        decode_image(path, 32)
    assert raised.value.path == str(path)
    assert isinstance(raised.value, ScalewiseError) and raised.value.hint


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(pixels, "MAX_PIXELS", 1000)
    with pytest.raises(Broken, match="40 × 30 pixels are too many"):
        decode_image(picture(tmp_path / "a.png"), 8)


def test_a_missing_file_is_broken_too(tmp_path):
    with pytest.raises(Broken, match="No such file"):
        decode_image(tmp_path / "a.jpg", 8)


@pytest.mark.parametrize("kind", ["pipe", "linked pipe", "socket", "folder", "device"])
def test_what_is_no_file_is_broken_and_nobody_waits_for_it(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # The path of a socket is a short one.
    path = Path("a.jpg")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "linked pipe":
        os.mkfifo("pipe")
        path.symlink_to("pipe")
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    for look in (lambda: decode_image(path, 8), lambda: pixels.read_header(path, decode=True)):
        with pytest.raises(Broken, match=r"a\.jpg cannot be read: (it is not a file|No such dev)"):
            look()


def test_a_name_that_is_no_text_can_be_told():
    with pytest.raises(Broken, match=r"\\xff\.jpg cannot be read") as raised:
        decode_image("no/\udcff.jpg", 8)
    str(raised.value).encode("ascii")


def test_a_random_crop_depends_on_seed_epoch_and_index_alone():
    content, crop = jpeg(80, 60), Crop(seed=3)

    def cut(epoch, index, crop=crop):
        return decode_image(content, 24, crop=crop, epoch=epoch, index=index).tobytes()

    assert cut(0, 0) == cut(0, 0)
    assert len({cut(epoch, index) for epoch in range(4) for index in range(4)}) == 16
    assert cut(0, 0, Crop(seed=4)) != cut(0, 0)


@pytest.mark.parametrize("size", [(300, 200), (7, 900), (1, 1)])
def test_random_crops_lie_within_the_image_and_have_the_shares_asked_for(size):
    crop = Crop(seed=0, scale=(0.2, 0.5), ratio=(0.5, 2.0))
    for index in range(200):
        (left, top, right, bottom), _ = crop.draw(1, index, size)
        assert 0 <= left < right <= size[0] and 0 <= top < bottom <= size[1]
        if size == (300, 200):
            wide, high = right - left, bottom - top
            assert 0.19 < wide * high / 60_000 < 0.51
            assert 0.48 < wide / high < 2.08


def test_half_of_the_crops_are_mirrored():
    flips = [Crop(seed=0).draw(0, index, (50, 50))[1] for index in range(1000)]
    assert 430 < sum(flips) < 570
    whole = Crop(seed=0, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=1.0)
    mirrored = decode_image(jpeg(32, 32), 32, crop=whole)
    assert (mirrored[:, ::-1] == decode_image(jpeg(32, 32), 32)).all()
