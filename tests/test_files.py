"""Only regular files are opened, and never more of them is read than the limit."""

import os
import socket
import stat
import time

import pytest

from scalewise.errors import RecordError
from scalewise.files import open_regular, read_file
from scalewise.record.write import write_text


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fsencode(path))


def link_to_device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (make_pipe, "a named pipe"),
        (make_socket, "a socket"),
        (link_to_device, "a device"),
        (lambda path: path.mkdir(), "a folder"),
    ],
)
def test_only_regular_files_are_read(tmp_path, make, kind):
    make(tmp_path / "file")
    began = time.monotonic()
    with pytest.raises(RecordError, match=f"file: it is {kind}, not a file") as refused:
        read_file(tmp_path / "file")
    assert time.monotonic() - began < 1
    assert refused.value.strerror == f"it is {kind}, not a file"
    assert refused.value.hint


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize(("make", "kind"), [(make_pipe, "a named pipe"), (make_socket, "a socket")])
def test_no_file_is_put_in_place_of_what_is_none(tmp_path, make, kind, is_link):
    make(tmp_path / "thing")
    path = tmp_path / "link" if is_link else tmp_path / "thing"
    if is_link:
        path.symlink_to("thing")
    before = os.lstat(path)
    with pytest.raises(RecordError, match=f"cannot write .*: it is {kind}, not a file") as refused:
        write_text(path, "text")
    assert refused.value.hint and os.lstat(path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices, and only root loses them")
def test_no_file_is_put_in_place_of_a_device(tmp_path):
    path = tmp_path / "device"
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    with pytest.raises(RecordError, match="it is a device, not a file"):
        write_text(path, "text")
    assert stat.S_ISCHR(os.lstat(path).st_mode)


def test_a_missing_file_is_an_ordinary_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "file")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "link", within=tmp_path)


def test_a_file_that_is_too_large_is_refused_unread(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * (1 << 20))
    assert len(read_file(path, 1 << 20)) == 1 << 20
    os.truncate(path, 1 << 40)  # A sparse file: its content would not fit into memory.
    with pytest.raises(RecordError, match="it is larger than 1 MiB"):
        read_file(path, 1 << 20)


def test_links_stay_in_their_folder(tmp_path):
    (tmp_path / "secret").write_text("outside")
    study = tmp_path / "study"
    (study / "run").mkdir(parents=True)
    (study / "file").write_text("inside")
    (study / "run" / "good").symlink_to("../file")
    (study / "run" / "bad").symlink_to("../../secret")
    assert read_file(study / "run" / "good", within=study) == b"inside"
    assert read_file(study / "run" / "bad") == b"outside"
    with pytest.raises(RecordError, match="bad: it is a link that leads out of"):
        open_regular(study / "run" / "bad", within=study)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.symlink_to(study)  # The folder itself may be reached by a link.
    assert read_file(elsewhere / "run" / "good", within=elsewhere) == b"inside"
