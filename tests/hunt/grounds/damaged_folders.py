"""Damage a study's folder; every verb answers as before, names the damage, or refuses and names it.

    python tests/hunt/grounds/damaged_folders.py tests/hunt/cases/damaged_folders-….json

prints what a kept case changes in the folder, and how the answers differ.
"""

import contextlib
import difflib
import io
import json
import math
import os
import random as random_module
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from scalewise.cli import main
from scalewise.launch.processes import machine_id
from scalewise.load_run import cache_runs
from scalewise.record.close import close
from scalewise.record.write import rank_file, write_json
from scalewise.spec import StudySpec

LIMIT = 60.0
CPU_SECONDS = 5.0
"""A command that takes longer counts as a hang."""
WALL_SECONDS = 25.0
MEMORY_BYTES = 1 << 30
"""What a command may use beyond what the process had before."""
READING = {
    "measure": ("measure", "{folder}", "--json"),
    "explain": ("explain", "{folder}", "--json"),
    "summary": ("summary", "{folder}", "--json"),
    "advise": ("advise", "{folder}", "--for", "time", "--up-to", "8", "--json"),
    "predict": ("predict", "{folder}", "--at", "8", "--json"),
    "compare": ("compare", "{clean}", "{folder}", "--json"),
    "compare runs": ("compare", "{clean}/{run}", "{folder}/{run}", "--json"),
    "status": ("status", "{folder}", "--json"),
    "report": ("report", "{folder}", "-o", "{out}.json"),
}
CHANGING = {
    "run": ("run", "{toml}", "-o", "{folder}"),
    "plan": ("plan", "{toml}", "-o", "{folder}"),
    "cancel": ("cancel", "{folder}"),
}
"""Commands that may write into the folder, but never over measurements."""


@dataclass(frozen=True)
class Study:
    """A finished study: its files by path, where ``RUN0`` stands for the id of the first run."""

    spec: StudySpec | None
    files: Mapping[str, bytes]
    times: Mapping[str, int]
    """Modification times, in nanoseconds: caches fit them."""
    run_ids: tuple[str, ...]
    toml: str = ""
    checked: bool = True
    """Whether each line was written with what finds damage; an older record was not."""

    def real(self, name: str) -> str:
        """Return the path of a file, with the id of its run."""
        return re.sub(r"RUN(\d+)", lambda match: self.run_ids[int(match[1])], name)

    def write(self, folder: Path, *, cached: bool) -> None:
        """Write the files of the study."""
        for name, content in self.files.items():
            if cached or not name.endswith("cache.json"):
                path = folder / self.real(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                os.utime(path, ns=(self.times[name], self.times[name]))


def _read_study(folder: Path, run_ids: tuple[str, ...], **other: Any) -> Study:
    files, times = {}, {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = str(path.relative_to(folder))
            for index, run_id in enumerate(run_ids):
                name = name.replace(run_id, f"RUN{index}")
            files[name] = path.read_bytes()
            times[name] = path.stat().st_mtime_ns
    return Study(files=files, times=times, run_ids=run_ids, **other)


TOML = """
name = "damaged"
repeats = 2
[run]
framework = "fake"
batch = 16
steps = 60
options = {noise = 0.02, drift = 0.01, watts = 300.0, idle_watts = 100.0, uneven = 0.1}
[vary]
topology = ["1x1", "1x2", "2x2"]
"""


@cache
def study(name: str) -> Study:
    """Make a study."""
    with tempfile.TemporaryDirectory() as made:
        return MAKERS[name](Path(made))


def _make_fake(folder: Path) -> Study:
    return _make(folder, TOML)


def _make_retried(folder: Path) -> Study:
    """A study whose second run failed at first, and then finished."""
    return _make(folder, TOML.replace("repeats = 2", "repeats = 1"), failed=1)


def _make(folder: Path, toml: str, failed: int | None = None) -> Study:
    import tomllib

    from scalewise.frameworks.__main__ import do_train  # ``python -m`` must not find it imported.

    spec = StudySpec.from_dict(tomllib.loads(toml))
    write_json(folder / "study.json", spec.to_dict())
    runs = spec.runs()
    for index, run in enumerate(runs):
        home = folder / run.id
        world = run.topology.world
        write_json(home / "spec.json", run.to_dict())
        (home / "log.txt").write_text("the program's output\n" * 20)
        (home / "plan").mkdir()
        (home / "plan" / "commands.sh").write_text("#!/bin/sh\nexit 1\n")
        attempts = [1, 2] if index == failed else [1]
        for attempt in attempts:
            ended = {"pid": 4000000, "created": 1794712705.0}
            details = {
                "launcher": "local", "token": "no such token", "host": os.uname().nodename,
                "machine": machine_id(), "uid": os.getuid(), "starter": ended,
            }  # fmt: skip
            write_json(
                home / "job.json",
                {
                    "attempt": attempt,
                    "world": world,
                    **details,
                    "commands": 1,
                    "processes": [ended],
                },
            )
            launched = 1794712705.25 + 100 * index + 20 * attempt
            with _environment(SCALEWISE_ATTEMPT=attempt, SCALEWISE_LAUNCHED=launched):
                assert do_train(str(home)) == 0
            if attempt != attempts[-1]:
                for rank in range(world):
                    path = rank_file(home, rank)
                    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-3]))
                assert close(home, attempt=attempt, world=world, ended=launched + 15)
        assert not close(home, attempt=attempts[-1], world=world, ended=time.time())
    cache_runs(folder)
    return _read_study(folder, tuple(run.id for run in runs), spec=spec, toml=toml)


def _make_script(folder: Path) -> Study:
    """A study of a user's script, as an earlier version recorded it."""
    source = Path(__file__).parents[2] / "folders" / "script"
    run_ids = tuple(sorted(path.name for path in source.iterdir() if path.is_dir()))
    return _read_study(source, run_ids, spec=None, checked=False)


MAKERS = {"fake": _make_fake, "retried": _make_retried, "script": _make_script}


@contextlib.contextmanager
def _environment(**values: object) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: str(value) for name, value in values.items()})
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# Damages of a file's content: each gets the content, the values of the case, and the study.

VALUES = [
    "NaN", "Infinity", "-Infinity", "1e999", "-1", "0", "null", '""', "[]", "{}", "true", "false",
    "HUGE", "HUGER", "1e300", "-1e300", "1e-300", '"text"', '"\\u0000"', '"\\ud800"', "LONG",
    "DEEP LIST", "DEEP TABLE", "[1,2,3]", '{"a":1}', "2", "1.5", "1e15", '"../../etc/passwd"',
]  # fmt: skip
PLACE = "the place of the new value"


def _text_of(value: str) -> str:
    if value == "LONG":
        return json.dumps("x" * 10**6)
    if value.startswith("HUGE"):
        return "9" * (30 if value == "HUGE" else 5000)
    if value == "DEEP LIST":
        return "[" * 10_000 + "]" * 10_000
    if value == "DEEP TABLE":
        return '{"a":' * 10_000 + "1" + "}" * 10_000
    return value


def _leaves(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every value of a JSON value with its path, tables and lists included."""
    if path:
        yield path, values
    if isinstance(values, dict):
        for key, part in values.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(values, list):
        for index, part in enumerate(values):
            yield from _leaves(part, (*path, index))


def _parent(values: Any, path: list[Any]) -> Any:
    for key in path[:-1]:
        values = values[key]
    return values


def _edit(text: bytes, edit: Callable[[Any], None], replaced: str = "") -> bytes:
    """Return a JSON text after a change of its values; in the form that the file has."""
    values = json.loads(text)
    edit(values)
    is_line = b"\n" not in text.strip()
    compact = is_line and b'": ' not in text
    if is_line:
        new = json.dumps(values, separators=(",", ":") if compact else None) + "\n"
    else:
        lines = json.dumps(values, indent=1)
        new = "{" + lines[1:].lstrip() + "\n"
    return new.replace(json.dumps(PLACE), replaced).encode()


def _set(text: bytes, path: list[Any], new: str) -> bytes:
    def edit(values: Any) -> None:
        _parent(values, path)[path[-1]] = PLACE

    return _edit(text, edit, new)


def _delete_key(text: bytes, path: list[Any]) -> bytes:
    def edit(values: Any) -> None:
        del _parent(values, path)[path[-1]]

    return _edit(text, edit)


def _rename_key(text: bytes, path: list[Any]) -> bytes:
    def edit(values: Any) -> None:
        parent = _parent(values, path)
        if isinstance(parent, dict):
            parent[f"{path[-1]}x"] = parent.pop(path[-1])

    return _edit(text, edit)


def _double_entry(text: bytes, path: list[Any]) -> bytes:
    def edit(values: Any) -> None:
        parent = _parent(values, path)
        if isinstance(parent, list):
            parent.append(parent[path[-1]])

    return _edit(text, edit)


def _change_number(text: bytes, path: list[Any], how: str) -> bytes:
    value = json.loads(text)
    for key in path:
        value = value[key]
    new = {
        "more": value * 1.25, "less": value * 0.5, "one more": value + 1, "one less": value - 1,
        "negative": -value, "tiny": value * (1 + 1e-6),
    }[how]  # fmt: skip
    return _set(text, path, json.dumps(round(new) if isinstance(value, int) else new))


IN_LINE: dict[str, Callable[..., bytes]] = {
    "set": lambda text, damage: _set(text, damage["path"], _text_of(damage["value"])),
    "delete key": lambda text, damage: _delete_key(text, damage["path"]),
    "rename key": lambda text, damage: _rename_key(text, damage["path"]),
    "double entry": lambda text, damage: _double_entry(text, damage["path"]),
    "number": lambda text, damage: _change_number(text, damage["path"], damage["how"]),
}
"""Damages of one JSON value: the whole of a JSON file, or a line of a file of lines."""


def _change_digit(content: bytes, damage: Mapping[str, Any]) -> bytes:
    places = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    if not places:
        return content
    place = places[int(damage["at"] * len(places))]
    digit = (int(chr(content[place])) + damage["by"]) % 10
    return content[:place] + str(digit).encode() + content[place + 1 :]


def _lines(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


def _at(content: bytes, damage: Mapping[str, Any]) -> int:
    return int(damage["at"] * len(content))


def _swap_lines(content: bytes, damage: Mapping[str, Any]) -> bytes:
    lines = _lines(content)
    first, second = damage["line"], damage["line2"]
    lines[first], lines[second] = lines[second], lines[first]
    return b"".join(lines)


def _without_line(content: bytes, damage: Mapping[str, Any]) -> bytes:
    lines = _lines(content)
    return b"".join(lines[: damage["line"]] + lines[damage["line"] + 1 :])


def _with_double(content: bytes, damage: Mapping[str, Any]) -> bytes:
    lines = _lines(content)
    return b"".join([*lines[: damage["line2"]], lines[damage["line"]], *lines[damage["line2"] :]])


def _insert(content: bytes, place: int, piece: bytes) -> bytes:
    return content[:place] + piece + content[place:]


IN_FILE: dict[str, Callable[[bytes, Mapping[str, Any]], bytes]] = {
    "flip": lambda content, damage: (
        content[: (place := _at(content, damage))]
        + bytes([content[place] ^ (1 << damage["bit"])])
        + content[place + 1 :]
    ),
    "digit": _change_digit,
    "cut": lambda content, damage: content[: _at(content, damage)],
    "beheaded": lambda content, damage: content[_at(content, damage) :],
    "hole": lambda content, damage: (
        content[: (place := _at(content, damage))] + content[place + damage["length"] :]
    ),
    "zeros": lambda content, damage: (
        content[: (place := _at(content, damage))]
        + bytes(min(damage["length"], len(content) - place))
        + content[place + damage["length"] :]
    ),
    "byte": lambda content, damage: _insert(
        content, _at(content, damage), bytes.fromhex(damage["hex"])
    ),
    "empty": lambda content, damage: b"",
    "rubbish": lambda content, damage: random_module.Random(damage["at"]).randbytes(3000),
    "rubbish at the end": lambda content, damage: (
        content + random_module.Random(damage["at"]).randbytes(100)
    ),
    "mark": lambda content, damage: b"\xef\xbb\xbf" + content,
    "utf-16": lambda content, damage: content.decode().encode("utf-16"),
    "carriage returns": lambda content, damage: content.replace(b"\n", b"\r\n"),
    "doubled": lambda content, damage: content + content,
    "long line": lambda content, damage: (
        content + b'{"attempt":1,"text":"' + b"x" * damage["length"] + b'"}\n'
    ),
    "long broken line": lambda content, damage: content + b"[" * damage["length"] + b"\n",
    "delete line": _without_line,
    "double line": _with_double,
    "swap lines": _swap_lines,
    "cut after line": lambda content, damage: b"".join(_lines(content)[: damage["line"] + 1]),
    "newline": lambda content, damage: content + b"\n",
}
HARMLESS_EDITS = ("newline",)

REPLACED: dict[str, Callable[[Path, Path], None]] = {
    "gone": lambda path, outside: None,
    "folder": lambda path, outside: path.mkdir(),
    "full folder": lambda path, outside: (path / "deeper").mkdir(parents=True),
    "fifo": lambda path, outside: os.mkfifo(path),
    "socket": lambda path, outside: _bind(path),
    "link to itself": lambda path, outside: path.symlink_to(path.name),
    "link to nothing": lambda path, outside: path.symlink_to("nothing-here"),
    "link to zeros": lambda path, outside: path.symlink_to("/dev/zero"),
    "link to null": lambda path, outside: path.symlink_to("/dev/null"),
    "link to a terminal": lambda path, outside: path.symlink_to("/dev/tty"),
    "link outside": lambda path, outside: path.symlink_to(outside),
    "link to passwd": lambda path, outside: path.symlink_to("/etc/passwd"),
    "device": lambda path, outside: os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5)),
}


def _bind(path: Path) -> None:
    before = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # The path of a socket may have 107 characters.
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(path.name)
    os.fchdir(before)
    os.close(before)


def apply(damage: Mapping[str, Any], made: Study, folder: Path, outside: Path) -> None:
    """Damage a file or folder of a study."""
    what = damage["what"]
    path = folder / made.real(damage["file"])
    if not os.path.lexists(path):
        return  # There is no cache, or another damage has taken it away.
    if what in IN_FILE:
        path.write_bytes(IN_FILE[what](path.read_bytes(), damage))
    elif what in IN_LINE and "line" in damage:
        lines = _lines(path.read_bytes())
        lines[damage["line"]] = IN_LINE[what](lines[damage["line"]], damage)
        path.write_bytes(b"".join(lines))
    elif what in IN_LINE:
        path.write_bytes(IN_LINE[what](path.read_bytes(), damage))
    elif what in REPLACED:
        outside.mkdir(exist_ok=True)
        moved = outside / path.name
        path.rename(moved)
        REPLACED[what](path, moved)
    elif what == "foreign line":
        lines = _lines(path.read_bytes())
        foreign = _lines((folder / made.real(damage["from"])).read_bytes())
        lines.insert(damage["line"], foreign[damage["line2"]])
        path.write_bytes(b"".join(lines))
    elif what == "foreign line instead":
        lines = _lines(path.read_bytes())
        foreign = _lines((folder / made.real(damage["from"])).read_bytes())
        lines[damage["line"]] = foreign[damage["line2"]]
        path.write_bytes(b"".join(lines))
    elif what == "other file":
        path.write_bytes((folder / made.real(damage["from"])).read_bytes())
    elif what == "exchanged":
        other, aside = folder / made.real(damage["from"]), folder / "aside"
        path.rename(aside)
        other.rename(path)
        aside.rename(other)
    elif what == "other attempt":
        lines = [
            line
            for line in _lines(path.read_bytes())
            if f'"attempt":{damage["attempt"]},'.encode() not in line
        ]
        path.write_bytes(b"".join(lines))
    elif what == "renumbered attempts":
        swapped = path.read_bytes().replace(b'"attempt":1,', b'"attempt":?,')
        swapped = swapped.replace(b'"attempt":2,', b'"attempt":1,')
        path.write_bytes(swapped.replace(b'"attempt":?,', b'"attempt":2,'))
    elif what == "added":
        (path.parent / damage["name"]).write_bytes(damage["content"].encode("latin-1"))
    elif what == "copied":
        (path.parent / damage["name"]).write_bytes(path.read_bytes())
    elif what == "linked twice":
        os.link(path, path.with_name("second-name"))
    elif what == "time":
        os.utime(path, (damage["time"], damage["time"]))
    elif what == "moved inside":
        path.rename(path.with_name("moved"))
        path.symlink_to("moved")
    else:
        raise ValueError(what)


HARMLESS = ("linked twice", "time", "added")
UNREAD = ("log.txt", "environment.json", "commands.sh", "spec.json", "cache.json", "aside")
"""Files of finished runs that no answer needs; a cache that does not fit is made anew."""


def is_harmless(damage: Mapping[str, Any], command: str) -> bool:
    """Return whether a damage cannot change an answer."""
    names = {Path(damage["file"]).name, Path(damage.get("from", damage["file"])).name}
    if command == "compare runs" and "spec.json" in names:
        return False
    return names <= {*UNREAD} or damage["what"] in HARMLESS


def draw(random: random_module.Random) -> Any:
    """Draw one or two damages, and the commands that read the folder."""
    name = random.choices(["fake", "retried", "script"], [5, 4, 2])[0]
    made = study(name)
    damages = [_draw_damage(random, made)]
    if random.random() < 0.12:
        damages.append(_draw_damage(random, made))
        if damages[0]["file"] == damages[1]["file"] or "exchanged" in (d["what"] for d in damages):
            damages.pop()
    commands = random.sample(list(READING), random.choice([1, 1, 2, 3]))
    if made.spec and random.random() < 0.04:
        commands = [random.choice(["run", "run", "run", "plan", "cancel"])]
        damages = [_draw_damage(random, made)]
        if random.random() < 0.4:
            file = _draw_file(random, made)
            damages = [{"file": file} | _draw_whole(random, made, file)]
        if random.random() < 0.6 and not damages[0]["file"].endswith("outcome.json"):
            damages.append(_run_again(random, damages[0]))
    return {
        "kind": damages[0]["what"], "study": name, "cached": random.random() < 0.5,
        "damages": damages, "commands": commands,
    }  # fmt: skip


def _run_again(random: random_module.Random, damage: Any) -> Any:
    """Return a damage after which the run of another damage is missing."""
    match = re.match(r"RUN\d+", damage["file"])
    home = match[0] if match else random.choice(["RUN0", "RUN1"])
    return {"file": f"{home}/outcome.json", "what": "gone"}


WEIGHTS = {
    "rank-": 10, "node-": 3, "outcome.json": 4, "failure-": 8, "job.json": 3, "study.json": 4,
    "cache.json": 1, "log.txt": 0.3, "spec.json": 0.5, "environment.json": 0.3, "commands.sh": 0.1,
}  # fmt: skip


def _draw_file(random: random_module.Random, made: Study) -> str:
    names = sorted(made.files)
    weights = [
        next((weight for part, weight in WEIGHTS.items() if Path(name).name.startswith(part)), 0.2)
        for name in names
    ]
    for index, name in enumerate(names):
        if name == "study.json":
            weights[index] *= len(made.run_ids)
    return random.choices(names, weights)[0]


def _draw_damage(random: random_module.Random, made: Study) -> Any:
    file = _draw_file(random, made)
    content = made.files[file]
    lines = _lines(content)
    is_lines = file.endswith(".jsonl")
    is_json = is_lines or file.endswith(".json")
    kinds = ["bytes", "file", "whole"]
    weights = [4.0, 2.0, 2.0]
    if is_json:
        kinds.append("value")
        weights.append(8.0)
    if is_lines:
        kinds.append("line")
        weights.append(5.0)
    kind = random.choices(kinds, weights)[0]
    damage: dict[str, Any] = {"file": file}
    if kind == "value":
        return damage | _draw_value(random, lines if is_lines else [content], is_lines)
    if kind == "line":
        damage["what"] = random.choice(
            ["delete line", "double line", "swap lines", "cut after line", "foreign line",
             "foreign line instead", "delete line"]
        )  # fmt: skip
        damage["line"] = random.randrange(len(lines))
        damage["line2"] = random.randrange(len(lines))
        if damage["what"].startswith("foreign"):
            damage["from"] = _similar(random, made, file)
            damage["line2"] = random.randrange(len(_lines(made.files[damage["from"]])))
        return damage
    if kind == "bytes":
        damage |= {
            "what": random.choice(
                ["flip", "flip", "digit", "digit", "digit", "cut", "beheaded", "hole", "zeros",
                 "byte"]
            ),
            "at": random.random(),
        }  # fmt: skip
        if damage["what"] == "flip":
            damage["bit"] = random.randrange(8)
        elif damage["what"] == "digit":
            damage["by"] = random.randint(1, 9)
        elif damage["what"] in ("hole", "zeros"):
            damage["length"] = random.choice([1, 2, 10, 100, 512, 4096])
        elif damage["what"] == "byte":
            damage["hex"] = random.choice(
                ["00", "ff", "c3", "0a", "0d", "20", "31", "2d", "e280a8", "1c"]
            )
        return damage
    if kind == "file":
        damage["what"] = random.choice(
            ["empty", "rubbish", "rubbish at the end", "mark", "utf-16", "carriage returns",
             "doubled", "newline", "long line", "long broken line"]
        )  # fmt: skip
        damage["at"] = random.random()
        if damage["what"].startswith("long"):
            damage["length"] = random.choices([10**5, 10**6, 5 * 10**7], [5, 5, 0.3])[0]
        return damage
    return damage | _draw_whole(random, made, file)


def _draw_value(random: random_module.Random, lines: list[bytes], is_lines: bool) -> Any:
    number = random.randrange(len(lines))
    leaves = list(_leaves(json.loads(lines[number])))
    # A list of many numbers counts as its first and its last few.
    leaves = [leaf for leaf in leaves if not isinstance(leaf[0][-1], int) or leaf[0][-1] < 3]
    path, value = random.choice(leaves)
    damage: dict[str, Any] = {"path": list(path)}
    if is_lines:
        damage["line"] = number
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    damage["what"] = random.choices(
        ["set", "delete key", "rename key", "number", "double entry"],
        [6, 2, 1, 5 if is_number else 0, 1 if isinstance(path[-1], int) else 0],
    )[0]
    if damage["what"] == "set":
        others = [text for text in VALUES if text != json.dumps(value)]
        damage["value"] = random.choice(others)
    elif damage["what"] == "number":
        damage["how"] = random.choice(["more", "less", "one more", "one less", "negative", "tiny"])
    return damage


def _similar(random: random_module.Random, made: Study, file: str) -> str:
    """Return another file of the same kind."""
    start = Path(file).name[:4]
    names = [
        name
        for name in sorted(made.files)
        if Path(name).name.startswith(start)
        and name != file
        and made.files[name] != made.files[file]
    ]
    return random.choice(names or sorted({"study.json", "RUN0/job.json"} - {file}))


ADDED = [
    "failure-old.json", "failure-.json", "failure-99.json", "failure-1e9.json", "node-.jsonl",
    "node-x.jsonl", "rank-00099.jsonl", "rank-abc.jsonl", "rank-00000.jsonl.bak", "notes.txt",
    ".DS_Store", "job.json~", "holder", "holder-after-x", ".starting",
]  # fmt: skip


def _draw_whole(random: random_module.Random, made: Study, file: str) -> Any:
    what = random.choice(
        [*REPLACED, "other file", "other file", "exchanged", "exchanged", "run", "run", "run",
         "added", "copied", "linked twice", "time", "moved inside", "attempt", "attempt"]
    )  # fmt: skip
    home = f"RUN{random.randrange(len(made.run_ids))}"
    if what == "attempt":
        ranks = sorted(name for name in made.files if "rank-" in name)
        return {
            "file": random.choice(ranks),
            "what": random.choice(["other attempt", "renumbered attempts"]),
            "attempt": random.choice([1, 2]),
        }
    if what == "run":
        others = [f"RUN{index}" for index in range(len(made.run_ids)) if f"RUN{index}" != home]
        what = random.choice(["exchanged", *REPLACED])
        return {"file": home, "what": what, "from": random.choice(others)}
    if what in ("other file", "exchanged"):
        return {"what": what, "from": _similar(random, made, file)}
    if what == "added":
        name = random.choice(ADDED)
        content = random.choice(["", "rubbish", "{}", '{"schema": 1}', "\xff\x00"])
        if name == "rank-00099.jsonl" and content.startswith("{"):
            content = ""
        return {"file": f"{home}/outcome.json", "what": what, "name": name, "content": content}
    if what == "copied":
        name = random.choice(ADDED[5:])
        return {"what": what, "name": name}
    if what == "time":
        return {"what": what, "time": random.choice([0, 1, 2**31, 4e9])}
    return {"what": what}


# Commands, and what they must answer.


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str
    problem: str = ""
    """A traceback, a warning of Python, or that it took too long."""

    @property
    def values(self) -> Any:
        """The JSON that was printed."""
        return json.loads(self.out, parse_constant=_refuse_constant)

    @property
    def sentences(self) -> set[str]:
        """All texts of the answer."""
        texts = set(self.err.splitlines())
        with contextlib.suppress(ValueError):
            texts |= {value for _, value in _leaves([self.values]) if isinstance(value, str)}
        return texts


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


class TookTooLong(BaseException):
    """A command did not end."""


def _alarm(number: int, frame: Any) -> None:
    raise TookTooLong


def give(words: list[str], hidden: Mapping[str, str]) -> Answer:
    """Give a command as a shell would, in this process; ``hidden``: what stands for paths."""
    out, err = io.StringIO(), io.StringIO()
    code, problem = 0, ""
    before = sys.argv, {number: signal.getsignal(number) for number in (1, 2, 15)}
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    sys.argv = ["scalewise", *words]
    old_alarm = signal.signal(signal.SIGALRM, _alarm)
    began = time.process_time()
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, limits[1]))
            try:
                main()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                resource.setrlimit(resource.RLIMIT_AS, limits)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except TookTooLong:
        stack = traceback.format_exc().splitlines()
        problem = f"not over after {WALL_SECONDS:.0f} s: " + " ".join(stack[-8:])
    except BaseException as error:
        places = traceback.extract_tb(error.__traceback__)[-3:]
        where = " < ".join(f"{Path(p.filename).name}:{p.lineno}" for p in reversed(places))
        problem = f"traceback: {type(error).__name__}: {str(error)[:200]} ({where})"
    finally:
        sys.argv = before[0]
        signal.signal(signal.SIGALRM, old_alarm)
        for number, handler in before[1].items():
            signal.signal(number, handler)
    if not problem and (seconds := time.process_time() - began) > CPU_SECONDS:
        problem = f"took {seconds:.1f} s of the processor"
    if not problem and warned:
        problem = f"Python warns: {warned[0].message} ({warned[0].filename}:{warned[0].lineno})"
    texts = [out.getvalue(), err.getvalue()]
    for path, name in hidden.items():
        texts = [text.replace(path, name) for text in texts]
    return Answer(code, *texts, problem)


def _answer(made: Study, command: str, folder: Path, clean: Path, toml: Path) -> Answer:
    words = CHANGING.get(command) or READING[command]
    out = folder.parent / "report"
    names = {
        "folder": folder, "clean": clean, "toml": toml, "out": out, "run": made.run_ids[0],
    }  # fmt: skip
    hidden = {str(folder): "FOLDER", str(clean): "CLEAN"}
    answer = give([word.format(**names) for word in words], hidden)
    if command == "report" and not answer.code and not answer.problem:
        text = out.with_suffix(".json").read_text().replace(str(folder), "FOLDER")
        answer = Answer(answer.code, text, answer.err)
    return answer


@cache
def right_answer(name: str, command: str) -> Answer:
    """Return what a command answers about the study without damage."""
    with tempfile.TemporaryDirectory() as made:
        folder, clean = Path(made) / "study", Path(made) / "clean"
        for each in (folder, clean):
            study(name).write(each, cached=False)
        answer = _answer(study(name), command, folder, clean, folder)
    assert not answer.problem, answer.problem
    return answer


def names_of(damage: Mapping[str, Any], made: Study) -> set[str]:
    """Return what a sentence about a damage must mention one of."""
    names = set()
    for file in (damage["file"], damage.get("from", "")):
        path = Path(made.real(file))
        names |= {path.name, *(part for part in path.parts if part in made.run_ids)}
    names.discard("")
    return names


def try_case(case: Any, folder: Path) -> str | None:
    """Damage a study's folder, and give commands; return what went wrong."""
    made = study(case["study"])
    home, clean, outside = folder / "study", folder / "clean", folder / "outside"
    made.write(home, cached=case["cached"])
    if any(command.startswith("compare") for command in case["commands"]):
        made.write(clean, cached=True)
    toml = folder / "study.toml"
    toml.write_text(made.toml)
    for damage in case["damages"]:
        apply(damage, made, home, outside)
    kept_outside = _contents(outside)
    for command in case["commands"]:
        before = _contents(home)
        answer = _answer(made, command, home, clean, toml)
        if wrong := _wrong(case, made, command, answer):
            return f"{command}: {wrong}"
        after = _contents(home)
        if command in CHANGING:
            if wrong := _overwritten(before, after):
                return f"{command}: {wrong}"
        elif before != after:
            changed = {
                name for name in before.keys() | after if before.get(name) != after.get(name)
            }
            return f"{command}: changed {sorted(changed)}"
        if _contents(outside) != kept_outside:
            return f"{command}: wrote to a file outside the study"
    return None


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of all regular files."""
    contents = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                contents[str(path.relative_to(folder))] = path.read_bytes()
    return contents


def _overwritten(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """Return which measurements a new run has lost; lines may be added to them."""
    for name, content in before.items():
        if name.endswith(".jsonl") and not after.get(name, b"").startswith(content):
            return f"{name} was overwritten"
    return ""


def _wrong(case: Any, made: Study, command: str, answer: Answer) -> str | None:
    """Return what is wrong with an answer."""
    if answer.problem:
        return answer.problem
    if "Traceback" in answer.out + answer.err:
        return f"a traceback: {(answer.out + answer.err)[-600:]}"
    wanted = set().union(*(names_of(damage, made) for damage in case["damages"]))
    if command in CHANGING:
        return None if not answer.code else _wrong_refusal(answer, wanted | {"rank ", "run "})
    right = right_answer(case["study"], command)
    if answer.code not in (0, right.code) and not (command == "status" and answer.code == 3):
        return _wrong_refusal(answer, wanted if made.checked else {""})
    try:
        values = answer.values
    except ValueError as error:
        return f"no JSON: {error}"
    if _same(values, right.values):
        return None
    if all(is_harmless(damage, command) for damage in case["damages"]):
        return f"a harmless change gives another answer: {_difference(right, answer)}"
    if not made.checked:
        return None
    new = "\n".join(answer.sentences - right.sentences)
    gone = any(
        damage["what"] in REPLACED and not Path(damage["file"]).name.startswith(("rank", "node"))
        for damage in case["damages"]
    )
    if gone and ("not finished" in new or "unfinished" in new or "missing" in new):
        return None
    if not any(name in new for name in wanted):
        return f"another answer without a doubt: {_difference(right, answer)}"
    return None


def _same(values: Any, other: Any) -> bool:
    """Return whether two answers are the same but for the rounding of sums."""
    if isinstance(values, float) and isinstance(other, (int, float)):
        return math.isclose(values, other, rel_tol=1e-9)
    if isinstance(values, list) and isinstance(other, list):
        return len(values) == len(other) and all(map(_same, values, other))
    if isinstance(values, dict) and isinstance(other, dict):
        return values.keys() == other.keys() and all(
            _same(value, other[key]) for key, value in values.items()
        )
    return type(values) is type(other) and bool(values == other)


def _wrong_refusal(answer: Answer, wanted: set[str]) -> str | None:
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    if not errors:
        return f"code {answer.code} without an error: {answer.err[-300:]!r}"
    if len(answer.err) > 3000:
        return f"a message of {len(answer.err)} characters: {answer.err[:200]!r}"
    if not any(name in answer.err for name in wanted):
        return f"a refusal that names no file: {answer.err[-400:]!r}"
    if "hint: " not in answer.err:
        return f"a refusal without a hint: {answer.err[-300:]!r}"
    return None


def _difference(right: Answer, answer: Answer) -> str:
    """Return the first lines in which two answers differ."""
    texts = [json.dumps(each.values, indent=1).splitlines() for each in (right, answer)]
    lines = difflib.unified_diff(*texts, lineterm="", n=1)
    changed = [line for line in lines if not line.startswith(("---", "+++"))]
    return " | ".join(line[:120] for line in changed[:8])


def show(path: Path) -> None:
    """Print what a kept case changes, and what the commands say."""
    case = json.loads(path.read_text())["case"]
    made = study(case["study"])
    folder = Path(tempfile.mkdtemp())
    home = folder / "study"
    try:
        made.write(home, cached=case["cached"])
        before = _contents(home)
        for damage in case["damages"]:
            print({**damage, "file": made.real(damage["file"])})
            apply(damage, made, home, folder / "outside")
        after = _contents(home)
        for name in sorted(before.keys() | after):
            if before.get(name) != after.get(name):
                texts = [
                    each.get(name, b"").decode(errors="backslashreplace").splitlines()
                    for each in (before, after)
                ]
                for line in difflib.unified_diff(*texts, name, "damaged", lineterm="", n=0):
                    print(line[:300])
                pair = zip(before.get(name, b""), after.get(name, b""), strict=False)
                first = next((place for place, (a, b) in enumerate(pair) if a != b), 0)
                for content in (before.get(name, b""), after.get(name, b"")):
                    print(f"from byte {first}: {content[max(0, first - 60) : first + 60]!r}")
        print("wrong:", try_case(case, Path(tempfile.mkdtemp(dir=folder))))
        made.write(folder / "clean", cached=True)
        toml = folder / "study.toml"
        toml.write_text(made.toml)
        for command in case["commands"]:
            answer = _answer(made, command, home, folder / "clean", toml)
            print(f"$ scalewise {command}: code {answer.code} {answer.problem}")
            print(answer.err[:1500])
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    show(Path(sys.argv[1]))
