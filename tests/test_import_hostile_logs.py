"""Damaged and hostile logs are read, or refused in one sentence."""

import csv
import random
import re
from pathlib import Path

import pytest

from event_files import event, event_file
from scalewise import results

MEGABYTE = 2**20
LINE = "Epoch {0}: {1} imgs/s, loss 0.3\n"


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def noise(size, seed=0):
    return random.Random(seed).randbytes(size)


REFUSED = {
    "binary": noise(200_000),
    "zeros": bytes(100_000),
    "empty": b"",
    "spreadsheet": b"PK\x03\x04" + noise(1000),
    "image": b"\x89PNG" + noise(1000),
    "cut event file": event_file(event("throughput", 1, 5.0))[:30],
    "a record of 2^60 bytes": b"\x00" * 7 + b"\x10" + noise(100),
    "no newline": b"a" * MEGABYTE,
    "an open JSON": b'{"a": ' * 50_000,
    "deep JSON": b":::MLLOG " + b"[" * 100_000,
    "NaN": "Epoch 1: nan imgs/s\nEpoch 2: inf imgs/s\nEpoch 3: -7 imgs/s\nEpoch 4: 0 imgs/s",
    "a huge number": "Epoch 1: 1e999 imgs/s",
    "digits": "1" * 100_000 + " img/s",
    "MLLOG without numbers": ':::MLLOG {"key": "tracked_stats", "value": {"throughput": "x"}, '
    '"time_ms": 1, "metadata": 3}',
    "MLLOG of another kind": ':::MLLOG [1, 2]\n:::MLLOG {"key": 7}\n:::MLLOG null',
    "quotes": 'epoch,step,throughput\n"' + "x" * 200_000,
    "UTF-16 without sense": b"\xff\xfe" + noise(999),
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_no_log_is_refused(scalewise, tmp_path, content):
    write(tmp_path, "n4.log", content)
    code, out, err = scalewise("import", "n4.log", "-o", "study.csv")
    assert (code, out) == (1, "") and not Path("study.csv").exists()
    assert re.match(r"error: n4.log is not a log that can be imported: .*\n hint: ", err), err


GOOD = "".join(LINE.format(n, 100 + n) for n in range(5))
READ = {
    "UTF-16": GOOD.encode("utf-16"),
    "Windows": GOOD.replace("\n", "\r\n").encode(),
    "colours": re.sub(r"(\d+) imgs", "\x1b[1;32m\\1\x1b[0m imgs", GOOD),
    "a terminal's title": "\x1b]0;training\x07" + GOOD,
    "a bar's states": GOOD.replace("\n", "\r  5%|▌ | 5/100 [00:01<00:19, 5it/s]\r\n"),
    "backspaces": GOOD.replace("loss", "x\b\b\bloss"),
    "some NULs": GOOD.encode() + bytes(20),
    "broken UTF-8": GOOD.encode() + b"\xff\xfe\xfa broken",
    "cut": GOOD.encode()[:-25],
    "NaN between": "Epoch 0: nan imgs/s\n" + GOOD,
    "markup": "<script>alert(1)</script> =HYPERLINK(1) \\input{x}\n" + GOOD,
    "very long lines": "x" * MEGABYTE + "\n" + GOOD,
    "mixed formats": "25/25 - 14s - 540ms/step\n" + GOOD + "100%|██| 9/9 [00:10<00:00, 9it/s]\n",
}


@pytest.mark.parametrize("content", READ.values(), ids=READ)
def test_a_log_with_flaws_is_read(scalewise, tmp_path, content):
    write(tmp_path, "n4.log", content)
    code, _, err = scalewise("import", "n4.log", "-o", "study.csv")
    assert (code, err) == (0, "")
    (curve,) = results.curves([Path("study.csv")])
    assert curve.points[0].throughput.value == pytest.approx(102.5, abs=1)


LARGE = {
    "text": b"some words of a training that says nothing at all, line after line\n",
    "rates": b"step 12345 loss 0.1234 throughput 123.4 img/s time 0.5 s epoch 3\n",
    "epochs": b"epoch 1 epoch 1 epoch 1 epoch 1 time time time time time time it/s /step\n",
    "JSON": b'{"epoch": 1, "throughput": 123.4}\n',
    "MLLOG": b':::MLLOG {"key": "x", "value": 1, "time_ms": 1, "metadata": {}}\n',
}


@pytest.mark.parametrize("line", LARGE.values(), ids=LARGE)
def test_a_very_large_log_takes_no_longer_than_a_large_one(scalewise, tmp_path, line, monkeypatch):
    """Much larger than the limit, which is scaled down here, so that the test is short."""
    monkeypatch.setattr("scalewise.import_logs.MAX_BYTES", MEGABYTE // 8)
    content = line * (5 * MEGABYTE // len(line))
    write(tmp_path, "n1.log", GOOD.encode() + content)
    code, out, _ = scalewise("import", "n1.log", "-o", "study.csv")
    assert code in (0, 1)
    assert code or "a large file: not read completely" in out


def test_names_of_files_stay_text(scalewise, tmp_path):
    """A name may hold what a spreadsheet, a terminal or a comment would take for its own."""
    names = ["=HYPERLINK(1)_n1.log", "a\n2,999,x_n2.log", '"q",\x1b[31m_n4.log', "‮n8.log"]
    for name in names:
        write(tmp_path, name, GOOD)
    code, out, err = scalewise("import", *names, "-o", "study.csv")
    assert (code, err) == (0, "") and "\x1b" not in out
    text = Path("study.csv").read_text()
    rows = list(csv.reader(line for line in text.splitlines() if not line.startswith("#")))
    assert len(rows) == 5 and {len(row) for row in rows} == {3}
    assert rows[1][2].startswith("'=") and "\u202e" not in text
    (curve,) = results.curves([Path("study.csv")])
    assert [point.devices for point in curve.points] == [1, 2, 4, 8]


def test_a_folder_with_too_many_files_is_refused(scalewise, tmp_path, monkeypatch):
    monkeypatch.setattr("scalewise.import_logs.MAX_FILES", 3)
    for number in range(5):
        write(tmp_path, f"n{number}.log", GOOD)
    code, _, err = scalewise("import", ".")
    assert code == 1 and "more than 3 files" in err
