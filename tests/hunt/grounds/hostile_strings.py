# ruff: noqa: E501, E731, C416, PT008, RUF021 - tables of strings and of what becomes of them
"""Strings that a shell, a browser, a spreadsheet, LaTeX or a terminal would take for commands.

Each is put in a place where a user, a file or another program may write it, and must arrive as it
is or be refused; nothing may be executed. Job scripts are run by bash, with recorders in place of
srun, mpirun, containers and Python.
"""

import contextlib
import csv
import io
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock
from xml.etree import ElementTree

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from give_command import CONTROL, give, what_is_wrong
from scalewise.errors import ScalewiseError
from scalewise.launch import Plan
from scalewise.launch.local import LocalLauncher
from scalewise.launch.slurm import SlurmLauncher
from scalewise.record.write import write_text
from scalewise.spec import StudySpec

LIMIT = 120.0
PAYLOADS = [
    "$(touch MARK)", "`touch MARK`", "; touch MARK", "&& touch MARK", "| touch MARK", "\ntouch MARK\n",
    "\r\ntouch MARK\r\n", "' ; touch MARK ; '", '" ; touch MARK ; "', "\\\" ; touch MARK ; \\\"", "${IFS}",
    "$((1+1))", "${HOME}", "$HOME", "$'\\x41'", "<(touch MARK)", ">MARK", "2>&1", "\\", "\\\\", "'", '"', "''", "%s%n%x",
    "%%", "%j", "{}", "{0}", "{devices}", "{port}", "{{7*7}}", "{% raw %}", "${{7*7}}", "<script>touch()</script>",
    "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "</title></style></script><b>", "javascript:alert(1)",
    "&lt;b&gt;&amp;", "-rf", "--option", "--job-name=x", "-x MARK", "../..", "../../MARK", "~", "~root", "*", "?", "[a-z]",
    "!!", "!x", "#", "# comment", "#SBATCH --wrap=x", "\n#SBATCH --wrap=x", "\x1b[31m", "\x1b]0;title\x07", "\x9b31m", "\x07", "\x08\x08",
    "\x7f", "\x00", "\t", "a\tb", "\u202egnp.exe", "\u2066x\u2069", "\u200b", "\ufeff", "\u2028", "\x85", "\udcff", "\ud800", "🙂", "é", "e\u0301",
    "=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", "=HYPERLINK(\"http://e\",\"x\")", "\t=1", "\\input{/etc/passwd}",
    "\\write18{touch MARK}", "\\immediate\\write18{touch MARK}", "$\\frac{$", "%", "_", "^", "&", "\\end{document}", "[x](javascript:alert(1))",
    "![x](http://e/x.png)", "| a | b |", "a,b", "a;b", "1e999", "nan", "None", "null", "true", "__import__('os').system('touch MARK')",
    "'''", '"""', "EOF", "<<EOF", "x" * 200, "a b", "  ", "a\\nb", "\\0", "\\x00", "LD_PRELOAD=x", "A=b", "(touch MARK)", "&",
]  # fmt: skip
PLAIN = "plain"
PLACES = [
    "study name", "run env", "launcher env", "program argument", "program argument placeholder", "output folder",
    "data", "option value", "launcher text", "container", "module", "srun option", "sbatch option", "local program",
    "file name", "column title", "cell", "report name", "log name", "log line", "log json", "command word",
    "written scripts",
]  # fmt: skip
LAUNCHER_TEXTS = [
    "account",
    "partition",
    "qos",
    "constraint",
    "reservation",
    "memory",
    "gres",
    "interface",
    "venv",
]
SUFFIXES = ["html", "md", "tex", "csv", "json", "txt", "svg"]


def draw(random: Random) -> dict[str, Any]:
    """Draw a place and a string."""
    parts = [random.choice(PAYLOADS) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    text = random.choice(["", "", "a", "a "]) + "".join(parts) + random.choice(["", "", "z", " z"])
    case = {"kind": random.choice(PLACES), "text": text}
    case["start"] = random.choice(["torchrun", "srun", "mpirun", "node", None])
    case["jobs"] = random.choice(["each", "each", "array", "one"])
    case["key"] = random.choice(LAUNCHER_TEXTS)
    case["suffix"] = random.choice(SUFFIXES)
    case["number"] = random.randrange(1000)
    return case


def try_case(case: dict[str, Any], folder: Path) -> str | None:
    """Put the string where the case says; return what it did there, None if it did nothing."""
    wrong = TRY[case["kind"]](case, folder)
    if wrong:
        return wrong
    marks = [path for path in folder.rglob("MARK*")] + [Path("MARK")]
    return next((f"it was executed: {path} was made" for path in marks if path.exists()), None)


# --- scripts of jobs -----------------------------------------------------------------------------

RECORDER = """#!/bin/bash
exec 9>"$RECORDS.$$"
printf '%s\\0' "BEGIN" "${0##*/}" "$#" "$@" >&9
env -0 >&9
printf 'END\\0' >&9
case "${0##*/}" in
scontrol) echo node1 ;;
srun|mpirun|singularity|apptainer|podman)
    while [ "$#" -gt 0 ]; do
        if [ "$1" = bash ] && [ "$2" = -c ]; then exec bash -c "$3"; fi
        if [ "$1" = trainer ]; then exec "$@"; fi
        shift
    done ;;
esac
"""
RECORDED = ("srun", "mpirun", "mpiexec", "singularity", "apptainer", "podman", "scontrol", "squeue", "sbatch",
            "module", "python-recorder", "trainer", "scalewise", "torchrun")  # fmt: skip


@contextlib.contextmanager
def recorders(folder: Path) -> Iterator[Path]:
    """Put recorders first on the PATH; yield the file that they write."""
    home = folder / "recorders"
    home.mkdir(exist_ok=True)
    for name in RECORDED:
        (home / name).write_text(RECORDER)
        (home / name).chmod(0o755)
    records = folder / "records"
    records.touch()
    env = {"PATH": f"{home}:/usr/bin:/bin", "RECORDS": str(records)}
    with mock.patch.dict(os.environ, env), contextlib.chdir(folder):
        yield records


def read_records(path: Path) -> list[tuple[str, list[str], dict[str, str]]]:
    """Return the name, arguments and environment of each recorded command."""
    found = []
    for each in sorted(path.parent.glob(f"{path.name}.*")):
        begin, command, count, *items = map(os.fsdecode, each.read_bytes().split(b"\0"))
        if begin == "BEGIN" and "END" in items:  # The node sampler may be ended before it.
            end = items.index("END", int(count))
            pairs = (item.partition("=") for item in items[int(count) : end])
            found.append((command, items[: int(count)], {key: value for key, _, value in pairs}))
    return found


def _study(
    case: Mapping[str, Any], changes: Callable[[dict[str, Any], str], None], text: str
) -> StudySpec:
    """Return a study with a string in a place."""
    run: dict[str, Any] = {"workload": "mlp", "batch": 8, "steps": 4, "env": {}, "options": {}}
    if case["start"] not in ("node", None):
        run["start"] = case["start"]
    launcher = {"name": "slurm", "python": "python-recorder", "jobs": case["jobs"], "env": {}}
    table = {
        "name": "study",
        "run": run,
        "vary": {"topology": ["1x1", "1x2"]},
        "launcher": launcher,
    }
    changes(table, text)
    return StudySpec.from_dict(table)


def _program(table: dict[str, Any], arguments: Sequence[str], case: Mapping[str, Any]) -> None:
    run = table["run"]
    for key in ("workload", "batch", "steps", "options"):
        del run[key]
    run["program"] = list(arguments)
    if case["start"] in ("node", None):
        run.pop("start", None)


def _scripts(case: Mapping[str, Any], study: StudySpec, folder: Path) -> Plan:
    table = {key: value for key, value in study.launcher.items() if key != "name"}
    return SlurmLauncher(table).plan(study.runs(), folder)


def _try_script(
    case: dict[str, Any],
    folder: Path,
    change: Callable[[dict[str, Any], str], None],
    arrived: Callable[[list[tuple[str, list[str], dict[str, str]]], list[str], str], bool],
    home: str | None = None,
) -> str | None:
    """Run the scripts of a study; return what was executed, or that the string did not arrive."""
    text = case["text"]
    with recorders(folder) as records:
        (folder / "train.py").write_text("import torch\n")
        try:
            study = _study(case, change, text)
            plan = _scripts(case, study, folder / (home or "study"))
        except ScalewiseError as problem:
            return _wrong_refusal(problem)
        plain = _scripts(case, _study(case, change, PLAIN), folder / "study")
        if wrong := _other_shape(plan, plain):
            return wrong
        for name, script in plan.files.items():
            path = plan.folder / name
            try:
                write_text(path, script)
            except ScalewiseError as problem:
                return _wrong_refusal(problem)
        for run in plan.runs:
            (plan.folder / run.id).mkdir(parents=True, exist_ok=True)
        for name in plan.files:
            env = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node1", "SLURM_JOB_NUM_NODES": "1",
                   "SLURM_ARRAY_TASK_ID": "0", "SLURM_NODEID": "0"}  # fmt: skip
            done = subprocess.run(
                ["bash", str(plan.folder / name)],
                env=env,
                capture_output=True,
                timeout=30,
                check=False,
            )
            if b"syntax error" in done.stderr or b"unexpected EOF" in done.stderr:
                return f"bash cannot parse {name}: {done.stderr[-300:]!r}"
        found = read_records(records)
        if not found:
            return "no command was recorded"
        directives = [
            line[8:]
            for script in plan.files.values()
            for line in script.split("\n")
            if line.startswith("#SBATCH ")
        ]
        parsed = [word for line in directives for word in _directive(line)]
        if not arrived(found, parsed, text):
            return f"{text!r} did not arrive in {found!r:.1500} {parsed!r:.600}"
    return None


def _directive(line: str) -> list[str]:
    """Return the words of a directive, as sbatch reads them: quotes join, backslashes escape."""
    return shlex.split(line)


def _other_shape(plan: Plan, plain: Plan) -> str | None:
    """Return how scripts differ in more than words from those with a plain string. Slurm reads no
    directive below the first command.
    """
    for (name, script), other in zip(plan.files.items(), plain.files.values(), strict=True):
        pairs = [
            [
                re.sub(r"=.*", "", line.replace('"', ""))
                for line in each.partition("\nset -u\n")[0].split("\n")
                if line.startswith("#SBATCH")
            ]
            for each in (script, other)
        ]
        if pairs[0] != pairs[1]:
            return f"{name} has other directives: {pairs[0]} and {pairs[1]}"
    return None


def _wrong_refusal(problem: ScalewiseError) -> str | None:
    if not problem.hint:
        return f"refused without a hint: {problem}"
    return f"refused at length: {str(problem)!r:.300}" if len(str(problem)) > 400 else None


def _in_environment(name: str) -> Callable[..., bool]:
    return lambda found, parsed, text: any(
        env.get(name) == text
        for command, _, env in found
        if command in ("srun", "mpirun", "trainer")
    )


def _as_argument(found: Any, parsed: list[str], text: str) -> bool:
    return any(text in arguments for _, arguments, _ in found)


def _in_directive(found: Any, parsed: list[str], text: str) -> bool:
    return any(text in word for word in parsed)


def _set_run(key: str) -> Callable[[dict[str, Any], str], None]:
    def change(table: dict[str, Any], text: str) -> None:
        table["run"][key] = text if key != "env" else {"A": text}

    return change


def _run_env(case: dict[str, Any], folder: Path) -> str | None:
    return _try_script(case, folder, _set_run("env"), _in_environment("A"))


def _launcher_env(case: dict[str, Any], folder: Path) -> str | None:
    def change(table: dict[str, Any], text: str) -> None:
        table["launcher"]["env"] = {"B": text}

    return _try_script(case, folder, change, _in_environment("B"))


def _study_name(case: dict[str, Any], folder: Path) -> str | None:
    def change(table: dict[str, Any], text: str) -> None:
        table["name"] = text

    try:
        home = _study(case, change, case["text"]).name
    except ScalewiseError as problem:
        return _wrong_refusal(problem)
    arrived = lambda found, parsed, text: any(
        text in word.replace("%%", "%").replace("\\\\", "\\") for word in parsed
    )
    return _try_script(case, folder, change, arrived, home)


def _output_folder(case: dict[str, Any], folder: Path) -> str | None:
    text = case["text"].replace("/", "_")
    if (
        not text.strip(".")
        or "\0" in text
        or len(os.fsencode(text) if _is_encodable(text) else b"x" * 999) > 200
    ):
        return None
    return _try_script(
        {**case, "text": text}, folder, lambda table, text: None,
        lambda found, parsed, text: any(env.get("SCALEWISE_RUN", "").startswith(str(folder / text)) for _, _, env in found),
        text,
    )  # fmt: skip


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _program_argument(case: dict[str, Any], folder: Path) -> str | None:
    if PLACEHOLDER.search(case["text"]):
        return None  # They are replaced, by design.
    change = lambda table, text: _program(table, ["trainer", "--a", text, "b"], case)
    return _try_script(case, folder, change, _as_argument)


def _program_placeholder(case: dict[str, Any], folder: Path) -> str | None:
    if any(
        "{" + name + "}" in case["text"]
        for name in ("devices", "port", "world", "nodes", "master", "node_rank")
    ):
        return None  # They are replaced, by design.
    change = lambda table, text: _program(
        table, ["trainer", "--n={devices}", text], {**case, "start": None}
    )
    return _try_script({**case, "start": None}, folder, change, _as_argument)


def _data(case: dict[str, Any], folder: Path) -> str | None:
    return _try_script(case, folder, _set_run("data"), lambda *_: True)


def _option_value(case: dict[str, Any], folder: Path) -> str | None:
    def change(table: dict[str, Any], text: str) -> None:
        table["run"]["options"] = {"a": text}

    return _try_script(case, folder, change, lambda *_: True)


def _launcher_text(case: dict[str, Any], folder: Path) -> str | None:
    key = case["key"]

    def change(table: dict[str, Any], text: str) -> None:
        table["launcher"][key] = text

    def arrived(found: Any, parsed: list[str], text: str) -> bool:
        if key == "interface":
            return any(env.get("NCCL_SOCKET_IFNAME") == text for _, _, env in found)
        return key == "venv" or any(word.endswith(text) or text in word for word in parsed)

    return _try_script(case, folder, change, arrived)


def _container(case: dict[str, Any], folder: Path) -> str | None:
    def change(table: dict[str, Any], text: str) -> None:
        table["launcher"]["container"] = {
            "image": text,
            "runtime": ["singularity", "apptainer", "podman"][case["number"] % 3],
        }
        if case["number"] % 2:
            table["launcher"]["container"] = {"image": "i.sif", "binds": [text], "options": [text]}

    return _try_script(case, folder, change, _as_argument)


def _list_of_launcher(
    key: str, arrived: Callable[..., bool]
) -> Callable[[dict[str, Any], Path], str | None]:
    def attempt(case: dict[str, Any], folder: Path) -> str | None:
        def change(table: dict[str, Any], text: str) -> None:
            table["launcher"][key] = [text]

        return _try_script({**case, "start": "srun"}, folder, change, arrived)

    return attempt


def _sbatch_option(case: dict[str, Any], folder: Path) -> str | None:
    def change(table: dict[str, Any], text: str) -> None:
        table["launcher"]["sbatch"] = [f"--comment={text}"]

    return _try_script(case, folder, change, _in_directive)


def _local_program(case: dict[str, Any], folder: Path) -> str | None:
    """Run the line that ``plan`` prints for a local run."""
    text = case["text"]
    with recorders(folder) as records:
        change = lambda table, text: (
            _program(table, ["trainer", text], case),
            table.pop("launcher"),
        )
        try:
            study = _study({**case, "start": None}, change, text)
            plan = LocalLauncher().plan(study.runs()[:1], folder / "study")
        except ScalewiseError as problem:
            return _wrong_refusal(problem)
        if any(name in text for name in ("{devices}", "{port}")):
            return None
        try:
            lines = [str(command) for command in plan.commands]
            subprocess.run(
                ["bash", "-c", "\n".join(lines)], capture_output=True, timeout=30, check=False
            )
        except UnicodeEncodeError:
            return None  # No process can be given half of a surrogate pair.
        if not any(text in arguments for _, arguments, _ in read_records(records)):
            return f"{text!r} is not an argument of {lines}"
    return None


def _written_scripts(case: dict[str, Any], folder: Path) -> str | None:
    """Give ``plan --write`` a study with the string; what it prints has no control characters."""
    study = {"name": "s", "run": {"framework": "fake", "batch": 8, "steps": 4, "env": {"A": case["text"]}},
             "vary": {"topology": [1]}, "launcher": {"name": "slurm", "python": "python-recorder"}}  # fmt: skip
    path = folder / "study.toml"
    try:
        path.write_text("\n".join(_toml(study)), encoding="utf-8")
    except UnicodeEncodeError:
        return None  # TOML is UTF-8.
    with mock.patch("scalewise.study.check", lambda *_: {}):
        answer = give(["plan", str(path), "--write", "jobs"], folder)
    shown = replace(answer, out=answer.out.replace(case["text"].strip(), ""))
    if CONTROL.search(answer.out):
        shown = answer
    return what_is_wrong(shown, base_seconds=3.0)


def _toml(table: Mapping[str, Any], name: str = "") -> list[str]:
    lines = [
        f"{key} = {_toml_value(value)}"
        for key, value in table.items()
        if not isinstance(value, dict)
    ]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += [f"[{name}{key}]", *_toml(value, f"{name}{key}.")]
    return lines


def _toml_value(value: Any) -> str:
    return (
        json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        if isinstance(value, str)
        else json.dumps(value)
    )


# --- tables, logs and reports --------------------------------------------------------------------


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(f"{tag} {name}" for name, _ in attrs)}
        self.found |= {
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("href", "src") and ":" in (value or "")
        }


def _file_name(text: str) -> str | None:
    """Return the string as the name of a file; None if no file can have it."""
    name = text.replace("/", "_").replace("\0", "").strip(".")
    if not name or not _is_encodable(name) or len(os.fsencode(name)) > 200:
        return None
    return name


def _try_report(case: dict[str, Any], folder: Path, name: str, table: str) -> str | None:
    """Write a report of a table in a format; compare what is active in it with a plain one."""
    suffix = case["suffix"]
    (folder / name).write_text(table, encoding="utf-8", errors="surrogateescape")
    (folder / "other.csv").write_text(
        "devices,throughput,plain\n1,100,plain\n2,190,plain\n4,350,plain\n"
    )
    command = ["report", f"./{name}", "-o", f"out.{suffix}"]
    answer = give(command, folder)
    if wrong := what_is_wrong(answer, base_seconds=6.0):
        return wrong
    if answer.code:
        return None
    if give(["report", "other.csv", "-o", f"plain.{suffix}"], folder).code:
        return "the plain table has no report"
    written, plain = [
        (folder / f"{stem}.{suffix}").read_text(encoding="utf-8") for stem in ("out", "plain")
    ]
    return _active(suffix, written, plain, case["text"])


def _active(suffix: str, written: str, plain: str, text: str) -> str | None:
    """Return what a report would do, beside showing its text."""
    if suffix == "html" and (more := Tags(written).found - Tags(plain).found - HARMLESS):
        return f"the page has {sorted(more)}"
    if suffix == "svg":
        tags = [
            {element.tag for element in ElementTree.fromstring(each).iter()}
            for each in (written, plain)
        ]
        return f"the picture has {tags[0] - tags[1]}" if tags[0] - tags[1] else None
    if suffix == "csv":
        for row in csv.reader(io.StringIO(written)):
            for cell in row:
                if re.match(r"\s*[=+\-@]", cell) and not re.fullmatch(
                    r"[+-]?[\d.]+(e[+-]?\d+)?", cell
                ):
                    return f"a spreadsheet would compute {cell!r}"
    if suffix == "tex":
        written = re.sub(r"(?m)^%.*", "", written)
    if suffix == "tex" and (
        found := re.search(r"(?<!\\)\\(input|write|immediate|end\{document\}|frac)", written)
    ):
        return f"LaTeX would execute {written[found.start() : found.end() + 30]!r}"
    if suffix == "md" and (
        found := re.search(r"<(script|img|svg|b|title)\b|\]\(javascript|!\[x\]\(", written)
    ):
        return f"Markdown has {written[max(0, found.start() - 20) : found.end() + 30]!r}"
    if suffix == "json":
        json.loads(written)
    if suffix in ("txt", "md", "tex", "csv") and (
        control := CONTROL.search(written.replace("\r\n", "\n"))
    ):
        return f"control character {control[0]!r} in {written[max(0, control.start() - 30) : control.end() + 30]!r}"
    return None


HARMLESS = {"svg", "br", "wbr"}


def _report_name(case: dict[str, Any], folder: Path) -> str | None:
    name = _file_name(case["text"])
    return name and _try_report(
        case,
        folder,
        f"{name}.csv",
        "devices,throughput,plain\n1,100,plain\n2,190,plain\n4,350,plain\n",
    )


def _column_title(case: dict[str, Any], folder: Path) -> str | None:
    title = '"' + case["text"].replace('"', '""') + '"'
    table = f"devices,throughput,{title}\n1,100,a\n2,190,a\n4,350,a\n"
    return _readable(table) and _try_report(case, folder, "table.csv", table)


def _cell(case: dict[str, Any], folder: Path) -> str | None:
    cell = '"' + case["text"].replace('"', '""') + '"'
    table = f"devices,throughput,model\n1,100,{cell}\n2,190,{cell}\n4,350,{cell}\n"
    return _readable(table) and _try_report(case, folder, "table.csv", table)


def _readable(table: str) -> str | None:
    """Return the table if it can be a file."""
    return table if "\0" not in table and "\ud800" not in table else None


def _table_file_name(case: dict[str, Any], folder: Path) -> str | None:
    """Give a table with this name to a verb; a command that is proposed takes the same file."""
    name = _file_name(case["text"])
    if name is None:
        return None
    verbs = [
        ["summary"],
        ["measure"],
        ["measure", "--json"],
        ["predict", "--at", "8"],
        ["advise", "--for", "time"],
    ]
    verb, *options = verbs[case["number"] % len(verbs)]
    (folder / name).write_text("devices,throughput\n1,100\n2,190\n4,350\n")
    answer = give([verb, f"./{name}", *options], folder)
    return what_is_wrong(answer, base_seconds=2.0) or _try_proposals(
        answer.out + answer.err, name, folder
    )


def _try_proposals(printed: str, name: str, folder: Path) -> str | None:
    """Run what an answer says to run, with a recorder as scalewise: the path is one word of it."""
    lines = [line for line in printed.split("\n") if (" scalewise " in line or "Next:" in line)]
    for line in lines:
        command = line[line.index("scalewise ") :] if "scalewise " in line else ""
        if "./" not in command:
            continue
        with recorders(folder) as records:
            for earlier in folder.glob("records.*"):
                earlier.unlink()
            subprocess.run(["bash", "-c", command], capture_output=True, timeout=20, check=False)
            found = read_records(records)
            if not any(name in argument for _, arguments, _ in found for argument in arguments):
                return f"{command!r} does not name {name!r}: {found!r:.500}"
    return None


def _log_name(case: dict[str, Any], folder: Path) -> str | None:
    name = _file_name(case["text"])
    if name is None:
        return None
    (folder / name).write_text("world size: 4\n" + "images/sec: 100.0\n" * 9)
    verb = [["import"], ["summary"]][case["number"] % 2]
    answer = give([*verb, f"./{name}"], folder)
    wrong = what_is_wrong(answer, base_seconds=2.0)
    if wrong or verb == ["import"] and answer.code == 0:
        return wrong or _bad_table(answer.out, folder)
    return _try_proposals(answer.err, name, folder)


def _bad_table(text: str, folder: Path) -> str | None:
    """Return what is wrong with a table that ``import`` printed: it has its one row."""
    table = text[text.find("# Imported") :] if "# Imported" in text else text
    (folder / "again.csv").write_text(table)
    answer = give(["measure", "again.csv", "--json"], folder)
    if wrong := what_is_wrong(answer, base_seconds=2.0):
        return wrong
    if answer.code:
        return f"the table cannot be read: {answer.err}: {table!r}"
    points = json.loads(answer.out)["curves"][0]["points"]
    rates = [(point["devices"], point["throughput"]["value"]) for point in points]
    return None if rates == [(4, 100.0)] else f"another table: {rates}: {table!r}"


def _log_line(case: dict[str, Any], folder: Path) -> str | None:
    text = case["text"]
    lines = [
        "world size: 4",
        text,
        "images/sec: 100.0",
        f"{text} images/sec: 100.0",
        f"model: {text}",
        *["images/sec: 100.0"] * 9,
    ]
    (folder / "run.log").write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
    return what_is_wrong(give(["import", "run.log"], folder), base_seconds=2.0)


def _log_json(case: dict[str, Any], folder: Path) -> str | None:
    rows = [
        {
            "step": step,
            "throughput": 100.0,
            "world_size": 4,
            case["text"]: case["text"],
            "run": case["text"],
        }
        for step in range(9)
    ]
    (folder / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return what_is_wrong(give(["import", "4=run.jsonl"], folder), base_seconds=2.0)


def _command_word(case: dict[str, Any], folder: Path) -> str | None:
    text = case["text"].replace("\0", "")
    if not _is_encodable(text):
        return None
    (folder / "t.csv").write_text("devices,throughput\n1,100\n2,190\n4,350\n")
    commands = [
        ["measure", text], ["summary", "t.csv", "--full-run", text], ["predict", "t.csv", "--at", text],
        ["advise", "t.csv", "--for", text], ["predict", "--like", text], ["catalog", text], ["catalog", "devices", text],
        ["compare", "t.csv", "t.csv", "--fail-if", text], ["advise", "t.csv", "--for", "time", "--price", text],
        ["predict", "t.csv", "--at", "8", "--like", text], ["report", "t.csv", "-o", f"{text}.md"],
        ["report", "t.csv", "--as", text], ["import", text], ["status", text], ["explain", text], ["plan", text],
        ["run", "--on", text, "--", "t.py"], ["run", "--on", "1", "--", text], ["init", text], [text], ["measure", "t.csv", "--scaling", text],
        ["advise", "t.csv", "--for", "time", "--despite", text], ["port", text], ["export", text], ["certify", text],
    ]  # fmt: skip
    words = commands[case["number"] % len(commands)]
    if words[0] == "run" and Path(text).name in RECORDED:
        return None
    answer = give(words, folder)
    paths = [word for word in words if text in word]
    for path in paths:  # A path on stdout is for other programs: to the byte.
        answer = replace(answer, out=answer.out.replace(path, ""))
    return what_is_wrong(answer, base_seconds=4.0)


PLACEHOLDER = re.compile(r"\{(devices|world|nodes|node_rank|master|port)\}")
TRY: dict[str, Callable[[dict[str, Any], Path], str | None]] = {
    "study name": _study_name, "run env": _run_env, "launcher env": _launcher_env, "program argument": _program_argument,
    "program argument placeholder": _program_placeholder, "output folder": _output_folder, "data": _data,
    "option value": _option_value, "launcher text": _launcher_text, "container": _container,
    "module": _list_of_launcher("modules", _as_argument), "srun option": _list_of_launcher("srun", _as_argument),
    "sbatch option": _sbatch_option, "local program": _local_program, "written scripts": _written_scripts,
    "file name": _table_file_name, "column title": _column_title, "cell": _cell, "report name": _report_name,
    "log name": _log_name, "log line": _log_line, "log json": _log_json, "command word": _command_word,

}  # fmt: skip
