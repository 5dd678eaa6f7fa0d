"""Only regular files are opened, and never more of them is read than the limit."""

import os
import socket
import time

import pytest

from scalewise.errors import RecordError
from scalewise.files import open_regular, read_file


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
