# ruff: noqa: E501 - tables of inputs
"""Study files, tables, logs, user configuration, options and paths that are wrong in any way.

A case says which valid input to take and how to change it, so that it stays small where the input
is large. Each is answered with finite numbers, or refused in a sentence and a hint, within
seconds; changes that mean nothing, such as a byte order mark, change no answer.
"""

import codecs
import contextlib
import datetime
import json
import math
import os
import re
import socket
import stat
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import tomllib

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from give_command import Answer, give, what_is_wrong

LIMIT = 120.0  # Of the clock; ``what_is_wrong`` limits the processor time to seconds.
ROOT = Path(__file__).resolve().parents[3]
KINDS = {"table": 5, "same table": 2, "study": 5, "same study": 1, "log": 3, "config": 2,
         "option": 4, "path": 3}  # fmt: skip

# --- drawing -------------------------------------------------------------------------------------

NUMBERS = [
    "1e-308", "5e-324", "1e-30", "1e100", "1e101", "1e308", "1e999", "-1e999", "NaN", "inf", "-inf",
    "-1", "0", "-0.0", "1000000000", "2147483648", "9223372036854775808", "1" + "0" * 400, "0x10",
    "1_000", "1,5", "1.5.5", "1e", "+", "--1", "٣", "½", "1e5%", "99999999999999999999:00",
    "1:2:3:4:5:6", "1k", "1e300k", "9" * 30 + "G", "1 ± 1e400", "5 ± 5", "1 [2, 0]", "1 [1e400, 2]",
]  # fmt: skip
WORDS = [
    "", " ", "x" * 10_000, "9" * 10_000, "x" * 300, "1," * 5000, "'" * 7, '"', '"""', "=1+1", "\u202e8",
    "\x1b[31m8", "<b>8</b>", "8\t9", "1979-05-27", "true", "null", "OOM", "8 GPUs", "2x4", "0x0",
    "999999999x999999999", "(" * 500, "[" * 500, "{" * 500, "a=b", "1;2", "é" * 90, "🙂" * 90,
]  # fmt: skip
TEXT_CHANGES = [
    "bom", "utf-16", "utf-16-le", "utf-32", "nul", "crlf", "cr", "latin-1", "cut", "twice", "reversed",
    "surrogate bytes", "noise", "long line", "400 rows", "1000 columns", "empty", "spaces",
    "50000 lines", "deep", "control",
]  # fmt: skip
SAME_TABLE = ["bom", "crlf", "cr", "utf-16", "blank lines", "spaces around", "quotes", "comment",
              "shuffled columns", "shuffled rows", "unused column", "tabs", "semicolons"]  # fmt: skip
SAME_STUDY = ["bom", "crlf", "blank lines", "comment", "dotted keys", "shuffled tables"]
TOML_VALUES = [
    "1e-308", "1e100", "1e999", "nan", "inf", "-inf", "-1", "0", "-0.0", "1000000000", "2147483648",
    "1" + "0" * 400, "0xffffffffffffffffffff", "true", '""', '" "', "[]", "{}", "[[]]", "[1, [2, [3]]]",
    "{a = {b = {c = 1}}}", "[{a = 1}, {b = 2}]", "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00",
    '"' + "x" * 300 + '"', '"' + "x" * 10_000 + '"', '"a\\nb"', '"\\u0000"', '"\\u001b[31m"', '"../.."',
    '"/"', '"/proc/self/mem"', '"1e999"', '"-1"', '"٣"', '"1x1x1"', '"0x1"', '"1000000000x1000000000"',
    '"' + "9" * 5000 + '"', "[" * 400 + "]" * 400, "[" + "1, " * 3000 + "1]", '["1x1", "1x1"]',
    '["1x' + "9" * 30 + '"]', "[nan]", "[1e999]", '["\\u202e"]', "[true, 1, 1.0]", '"🙂"',
    '{"a b" = 1}', '{"' + "k" * 5000 + '" = 1}', "2", "0.5", '"fake"', '"torch.ddp"', '"nosuch"',
]  # fmt: skip
PATHS = [
    "missing", "folder", "file", "empty file", "empty folder", "unreadable folder", "unreadable file", "fifo",
    "zero", "random device", "full device", "socket", "sparse", "newline", "surrogate", "long name",
    "long path", "loop", "dangling", "below a file", "empty", "dash", "directory slash", "binary",
    "tilde", "percent", "spaces", "link to zero", "folder with fifo",
]  # fmt: skip
TABLE_COMMANDS = [
    ["summary", "FILE"], ["measure", "FILE", "--json"], ["measure", "FILE"],
    ["measure", "FILE", "--all", "--scaling", "weak", "--devices-per-node", "4"],
    ["summary", "FILE", "--full-run", "90 epochs"], ["predict", "FILE", "--at", "64,128"],
    ["predict", "FILE", "--at", "1000000000", "--json"], ["advise", "FILE", "--for", "efficiency=0.8"],
    ["advise", "FILE", "--for", "time", "--up-to", "1024", "--json", "--price", "2.5"],
    ["advise", "FILE", "--for", "balanced", "--watts", "700", "--runs", "8", "--worth", "64"],
    ["compare", "FILE", "OTHER"], ["compare", "OTHER", "FILE", "--json"],
    ["compare", "OTHER", "FILE", "--fail-if", "throughput at 4 drops 3%"],
    ["compare", "OTHER", "FILE", "FILE2"], ["import", "FILE"], ["summary", "FILE", "--json"],
]  # fmt: skip
REPORTS = ["html", "csv", "tex", "md", "json", "txt", "svg", "png", "pdf"]
OPTION_COMMANDS = [
    ["summary", "FILE"], ["measure", "FILE"], ["compare", "FILE", "OTHER"],
    ["predict", "FILE", "--at", "64"], ["advise", "FILE", "--for", "time"], ["import", "LOG"],
    ["report", "FILE", "-o", "out.md"], ["plan", "STUDY"], ["catalog", "devices", "h100"],
    ["status", "EMPTY"], ["cancel", "EMPTY"], ["explain", "EMPTY"], ["export", "EMPTY"], ["plugins"],
    ["port", "SCRIPT"], ["init", "new.toml"], ["certify", "EMPTY"], ["data make", "new", "--images", "8"],
    ["run", "MISSING"], ["data check", "EMPTY"], ["data bench", "EMPTY"], ["demo", "extra"], ["nosuch"],
]  # fmt: skip
PATH_COMMANDS = [
    ["summary", "PATH"], ["measure", "PATH"], ["explain", "PATH"], ["compare", "FILE", "PATH"],
    ["predict", "PATH", "--at", "8"], ["advise", "PATH", "--for", "time"], ["report", "PATH"],
    ["report", "FILE", "-o", "PATH"], ["report", "FILE", "-o", "PATH.md"], ["report", "FILE", "--files", "PATH"],
    ["plan", "PATH"], ["plan", "STUDY", "-o", "PATH"], ["plan", "STUDY", "--write", "PATH"],
    ["run", "PATH"], ["run", "--on", "1", "--", "PATH"], ["status", "PATH"], ["cancel", "PATH"], ["import", "PATH"],
    ["import", "4=PATH"], ["import", "LOG", "-o", "PATH"], ["init", "PATH"], ["export", "PATH"],
    ["export", "EMPTY", "-o", "PATH"], ["port", "PATH"], ["port", "SCRIPT", "-o", "PATH"],
    ["certify", "PATH"], ["data check", "PATH"], ["data make", "new", "--from", "PATH"],
    ["predict", "FILE", "--at", "8", "-o", "PATH"],
    ["predict", "EMPTY", "--at", "8", "--simulate", "--collectives", "PATH"],
]  # fmt: skip


def draw(random: Random) -> dict[str, Any]:
    """Draw a kind of input, a valid one of it, changes and a command."""
    kind = random.choices([*KINDS], [*KINDS.values()])[0]
    return {"kind": kind, **DRAW[kind](random)}


def _draw_table(random: Random) -> dict[str, Any]:
    changes: list[list[Any]] = []
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        if random.random() < 0.7:
            value = random.choice(NUMBERS + WORDS)
            changes.append(["cell", random.randrange(12), random.randrange(4), value])
        else:
            changes.append([random.choice(TEXT_CHANGES), random.randrange(10**6)])
    command = random.choice(TABLE_COMMANDS)
    if random.random() < 0.15:
        command = ["report", "FILE", "-o", f"out.{random.choice(REPORTS)}"]
        command += random.choice([[], [], ["--price", "2.5"], ["--full-run", "1e18 samples"]])
    elif random.random() < 0.05:
        extra = random.choice([["--slides"], ["--evidence"], ["--as", "extrap"], ["--as", "mllog"]])
        suffix = {"--slides": "html", "--evidence": "tex"}.get(extra[0], "txt")
        command = ["report", "FILE", *extra, "-o", f"out.{suffix}"]
    return {"base": random.choice([*TABLES]), "changes": changes, "command": command}


def _draw_same_table(random: Random) -> dict[str, Any]:
    changes = [[change, random.randrange(10**6)] for change in random.sample(SAME_TABLE, 2)]
    command = random.choice([["measure", "FILE", "--json"], ["summary", "FILE", "--json"]])
    return {"base": random.choice(PLAIN_TABLES), "changes": changes, "command": command}


def _draw_study(random: Random) -> dict[str, Any]:
    changes: list[list[Any]] = []
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        if random.random() < 0.8:
            how = random.choice(["set", "set", "set", "set", "add", "delete", "rename"])
            value = random.choice(TOML_VALUES)
            changes.append([how, random.randrange(10**6), value, random.choice(STUDY_KEYS)])
        else:
            changes.append([random.choice([*TEXT_CHANGES, "double key", "deep keys"]),
                            random.randrange(10**6)])  # fmt: skip
    command = random.choice(
        [["plan", "FILE"], ["plan", "FILE"], ["plan", "FILE", "--launcher", "slurm", "--write", "jobs"],
         ["plan", "FILE", "--price", "2.5", "--full-run", "18x"], ["plan", "FILE", "--variant", "cpu"]]
    )  # fmt: skip
    asked = random.random() < 0.15
    return {
        "base": random.choice([*STUDIES]),
        "changes": changes,
        "command": command,
        "asked": asked,
    }


def _draw_same_study(random: Random) -> dict[str, Any]:
    changes = [[change, random.randrange(10**6)] for change in random.sample(SAME_STUDY, 2)]
    return {"base": random.choice([*STUDIES]), "changes": changes, "command": ["plan", "FILE"]}


def _draw_log(random: Random) -> dict[str, Any]:
    changes: list[list[Any]] = []
    for _ in range(random.choice([1, 1, 2, 3])):
        if random.random() < 0.6:
            changes.append(["number", random.randrange(10**6), random.choice(NUMBERS + WORDS)])
        else:
            changes.append([random.choice(TEXT_CHANGES), random.randrange(10**6)])
    command = random.choice(
        [["import", "FILE"], ["import", "4=FILE"], ["import", "1=FILE", "2=OTHERLOG", "-o", "t.csv"],
         ["import", "4=FILE", "--samples-per-epoch", "50000"], ["import", "99999x9999999=FILE"],
         ["import", "4=FILE", "--batch", "256", "--per-device"], ["summary", "FILE"]]
    )  # fmt: skip
    return {"base": random.choice([*_logs()]), "changes": changes, "command": command}


def _draw_config(random: Random) -> dict[str, Any]:
    name, commands = random.choice([*CONFIGS.items()])
    changes: list[list[Any]] = []
    for _ in range(random.choice([1, 1, 2])):
        if random.random() < 0.75:
            how = random.choice(["set", "set", "set", "add", "delete", "rename"])
            value = random.choice(TOML_VALUES)
            changes.append([how, random.randrange(10**6), value, random.choice(CONFIG_KEYS)])
        else:
            changes.append([random.choice([*TEXT_CHANGES, "double key", "deep keys"]),
                            random.randrange(10**6)])  # fmt: skip
    if random.random() < 0.15:
        changes = [["path", random.choice(PATHS)]]
    return {"base": name, "changes": changes, "command": random.choice(commands["commands"])}


def _draw_option(random: Random) -> dict[str, Any]:
    command = random.choice(OPTION_COMMANDS)
    options = _options().get(command[0], [["--nosuch"]])
    words = list(command)
    for _ in range(random.choice([1, 1, 1, 2])):
        name = random.choice(random.choice(options))
        value = random.choice(
            [*NUMBERS, *WORDS, *OPTION_VALUES] if random.random() < 0.7 else OPTION_VALUES
        )
        how = random.random()
        if how < 0.6 or not name.startswith("--"):
            words += [name, value]
        elif how < 0.9:
            words.append(f"{name}={value}")
        elif how < 0.95:
            words.append(name)
        else:
            words.append(name[:-1])
    if random.random() < 0.1:
        words.insert(random.randrange(1, len(words) + 1), random.choice(WORDS))
    if words[0] == "run":  # Nothing is to start, whatever the options say.
        words = [word for word in words if word not in ("--on", "--detach")]
    kept = [word.replace("\0", "") for word in words if word != "--debug"]
    return {"command": kept}


def _draw_path(random: Random) -> dict[str, Any]:
    return {"path": random.choice(PATHS), "command": random.choice(PATH_COMMANDS)}


DRAW: dict[str, Callable[[Random], dict[str, Any]]] = {
    "table": _draw_table, "same table": _draw_same_table, "study": _draw_study,
    "same study": _draw_same_study, "log": _draw_log, "config": _draw_config,
    "option": _draw_option, "path": _draw_path,
}  # fmt: skip

OPTION_VALUES = [
    "", "0", "-1", "1", "4", "1e999", "nan", "inf", "1e-308", "9" * 400, "1,2", "1,,2", "4,8,4", "1x4,2x4",
    "weak", "strong", "deadline=2h", "deadline=1e999h", "efficiency=0", "efficiency=1e-308",
    "budget=-1", "cost=nan", "energy=1e400kWh", "throughput=1e308", "90 epochs", "1e18 samples",
    "1e999x", "0x", "aws:p5.48xlarge", "aws:", ":", "=", "=1", "a=", "a=b=c", "loss=2.1",
    "epochs=90 at 256", "epochs=1e999 at 0", "noise", "like:resnet", "like:", "10min", "8=10min,32=6h",
    "12h per node", "1e308d", "200GB/s,5us", "0GB/s,0us", "1e999GB/s,1us", "ring", "10GB", "1e400GB",
    "throughput at 4 drops 3%", "throughput at 1e999 drops nan%", "3%", "1e-300%", "-3%", "efficiency", "speedup",
    "resnet50 v100", "h100", "local", "slurm", "mlp", "--", "-", "-o", "out.html", "out.nosuch", "x" * 300,
    "x" * 10_000, "\udcff", "bad\udcff.csv", "a\nb", "\x1b[31m", "🙂", "no such code", "columns disagree",
]  # fmt: skip
STUDY_KEYS = [
    "name", "scaling", "repeats", "run.batch", "run.epochs", "run.steps", "run.samples", "run.lr",
    "run.workload", "run.data", "run.framework", "run.strategy", "run.env.A", "run.options.compute",
    "run.options", "run.env", "run.parallelism", "run.parallelism.tensor", "run.seed", "run.workers",
    "run.threads", "run.ema", "run.warmup_epochs", "run.compile", "run.program", "run.digest", "run.resume",
    "run.clip", "run.base_batch", "run.global_batch", "run.start", "run.launcher", "run.certify",
    "vary.topology", "vary.batch", "vary.env", "vary.options", "vary.nosuch", "variant.cpu.run.batch",
    "variant.cpu", "variant", "launcher.name", "launcher.time", "launcher.modules", "launcher.env.B",
    "launcher.throttle", "launcher.patience", "launcher.container", "launcher.container.image",
    "launcher.max_device_hours", "launcher.site", "launcher.sbatch", "launcher.gres", "launcher.warning",
    "engines.torch", "engines", "full_run", "cases", "certify", "run.noise_every", "run.edge", "run.stop_after",
    "run.trace", "run.repeat", "run.precision", "launcher.jobs", "launcher.lines", "launcher.python",
]  # fmt: skip
CONFIG_KEYS = [
    "default.partition", "default.time", "default.env.X", "default.modules", "other", "torch", "fake",
    "tensorflow", "device", "price", "link", "nosuch", "default.container.image", "default.nosuch",
]  # fmt: skip

TABLES = {
    "vit-h14-tiny-224.csv": None, "vit-h14-micro-224.csv": None, "resnet50v2-cifar10.csv": None,
    "resnet152v2-cifar10.csv": None,
    "plain.csv": "devices,throughput\n1,100\n2,190\n4,360\n8,650\n16,1100\n",
    "times.csv": "devices,time\n1,800\n2,410\n4,210\n8,115\n",
    "all.csv": "devices,nodes,throughput,time,samples,energy\n1,1,100,1000,100000,2.5\n"
               "2,1,190,530,100000,2.6\n4,1,360,280,100000,2.9\n8,2,640,160,100000,3.4\n",
    "repeats.csv": "gpus;img/s 1;img/s 2;img/s 3\n1;100;101;99\n2;190;191;188\n4;360;362;355\n",
    "steps.csv": "GPUs,it/s,batch per GPU\n1,2.5,64\n2,2.4,64\n4,2.2,64\n8,2.0,64\n",
    "markdown.md": "| GPUs | images/s | epoch time | efficiency |\n|---|---|---|---|\n"
                   "| 1 | 240 | 10:00 | 100 % |\n| 2 | 470 | 5:06 | 98 % |\n| 4 | 900 | 2:40 | 94 % |\n",
    "wide.csv": "GPUs,1,2,4,8\nimages/s,240,470,900,1700\ntime [min],20,10.2,5.3,2.9\n",
    "speedup.csv": "gpus\tspeedup\n1\t1\n2\t1.9\n4\t3.6\n8\t6.7\n",
    "spread.csv": "devices,throughput\n1,100 ± 2\n2,190 ± 3\n4,360 ± 4\n8,650 ± 9\n",
    "latex.tex": "GPUs & time (s) & speedup \\\\ \\hline\n1 & 800 & 1.0 \\\\\n2 & 410 & 1.95 \\\\\n4 & 215 & 3.72 \\\\\n",
}  # fmt: skip
PLAIN_TABLES = ["plain.csv", "times.csv", "all.csv"]
STUDIES = {
    "fake-cluster.toml": None,
    "demo.toml": None,
    "slurm.toml": 'name = "study"\nscaling = "weak"\nrepeats = 3\n\n[run]\nframework = "fake"\nbatch = 64\n'
                  'steps = 20\n\n[vary]\ntopology = ["1x1", "1x2", "2x4"]\n\n[launcher]\nname = "slurm"\n'
                  'partition = "gpu"\naccount = "me"\ngres = "gpu"\ntime = "00:30:00"\n',
    "variants.toml": 'name = "variants"\n\n[run]\nframework = "fake"\nbatch = 8\nsamples = 4000\n'
                     'options = {compute = 0.001}\nenv = {A = "1"}\n\n[vary]\ntopology = [1, 2, 4]\n'
                     '"options.host" = [0.001, 0.002]\n\n[variant.cpu.run]\nepochs = 1\n\n'
                     '[variant.cpu.vary]\ntopology = [1]\n',
    "cases.toml": 'name = "cases"\nfull_run = "90 epochs"\n\n[run]\nframework = "fake"\nglobal_batch = 64\n'
                  'epochs = 1\ndata = "synthetic:4096"\n\n[[cases]]\nlr = 0.1\n\n[[cases]]\nlr = 0.2\n'
                  'precision = "bf16"\n\n[vary]\ntopology = ["1x1", "1x2"]\n',
}  # fmt: skip
CONFIGS: dict[str, Any] = {
    "sites.toml": {
        "text": '[default]\npartition = "gpu"\naccount = "me"\ntime = "01:00:00"\nmodules = ["cuda/12"]\n'
                'env = {X = "1"}\n\n[default.container]\nimage = "t.sif"\n\n[other]\ngres = "gpu"\n',
        "commands": [["plan", "STUDY", "--launcher", "slurm"]],
    },
    "engines.toml": {
        "text": 'tensorflow = "/opt/tf/bin/python"\njax = "~/jax/bin/python"\n',
        "commands": [["plan", "STUDY"]],
    },
    "catalog.toml": {
        "text": '[[device]]\nname = "mine"\npower = 300\nmemory = 16e9\nvendor = "me"\npeak = {bf16 = 1e14}\n\n'
                '[[price]]\nname = "us"\nprovider = "us"\ndevice = "mine"\nprice = 1.5\ndevices = 4\n'
                'currency = "EUR"\nregion = "here"\n\n[[link]]\nname = "wire"\nbandwidth = 1e9\nlatency = 1e-6\n',
        "commands": [["catalog"], ["catalog", "devices", "mine", "--json"],
                     ["advise", "FILE", "--for", "time", "--price", "us"]],
    },
}  # fmt: skip


@cache
def _logs() -> dict[str, str]:
    """Return texts of logs by name."""
    texts = {}
    for path in sorted((ROOT / "studies/logs").glob("*.log")):
        text = path.read_text()
        texts[path.name] = text[:6000]
    rows = (ROOT / "tests/analysis/measure/logs/lines.txt").read_text().splitlines()
    for number, row in enumerate(rows):
        if not row.startswith("#") and row.count(" | ") >= 2:
            line = row.split(" | ", 2)[2].replace("\\t", "\t").replace("\\r", "\r")
            texts[f"line{number}.log"] = "world size: 4\n" + f"{line}\n" * 12
    return texts


@cache
def _options() -> dict[str, list[list[str]]]:
    """Return the names of the options of each verb."""
    import typer

    from scalewise.cli import app

    found = {}

    def collect(command: Any, name: str) -> None:
        if hasattr(command, "commands"):
            for verb, below in command.commands.items():
                collect(below, f"{name} {verb}".strip())
        else:
            names = [p.opts for p in command.params if p.param_type_name == "option"]
            found[name] = [*names, ["--help"], ["--nosuch"]]

    collect(typer.main.get_command(app), "")
    return found


# --- changing ------------------------------------------------------------------------------------


def change_text(text: str, change: str, seed: int) -> bytes:
    """Return the bytes of a text that is encoded, cut, filled or mixed up."""
    random = Random(seed)
    lines = text.splitlines(keepends=True) or [""]
    some = random.randrange(len(lines))
    simple = {
        "crlf": text.replace("\n", "\r\n"),
        "cr": text.replace("\n", "\r"),
        "cut": text[: random.randrange(len(text) + 1)],
        "twice": text + text,
        "reversed": "".join(reversed(lines)),
        "empty": "",
        "spaces": " \n\t\n" * 5,
        "long line": "".join([*lines[:some], "x" * 100_000 + "\n", *lines[some:]]),
        "400 rows": text + "".join(lines[-1:] * 400),
        "1000 columns": "".join(line.rstrip("\n") + ",1" * 1000 + "\n" for line in lines),
        "50000 lines": text + lines[some] * 50_000,
        "deep": text + "[" * 2000,
        "double key": text + lines[some],
        "deep keys": text + "\n" + "a." * 1500 + "a = 1\n",
        "control": text.replace(
            text[some : some + 1] or " ", random.choice("\x01\x1b\x7f\x85\u2028\u202e\ufeff"), 3
        ),
        "blank lines": text.replace("\n", "\n\n"),
        "comment": "# a comment\n" + text + "# another one\n",
    }
    if change in simple:
        return simple[change].encode("utf-8", "surrogatepass")
    data = text.encode("utf-8", "surrogatepass")
    place = random.randrange(len(data) + 1)
    if change == "bom":
        return codecs.BOM_UTF8 + data
    if change in ("utf-16", "utf-16-le", "utf-32"):
        return text.encode(change, "surrogatepass")
    if change == "latin-1":
        return ("# Größe\n" + text).encode("latin-1", "replace")
    inserted = {"nul": b"\0", "surrogate bytes": b"\xed\xa0\x80", "noise": random.randbytes(64)}
    return data[:place] + inserted[change] + data[place:]


def _change_table(text: str, changes: list[list[Any]]) -> bytes:
    """Return a table with changed cells, or with a changed text."""
    data = None
    for change in changes:
        if change[0] == "cell":
            lines = text.splitlines()
            rows = [index for index, line in enumerate(lines) if line and line[0] != "#"]
            index = rows[change[1] % len(rows)] if rows else 0
            mark = next((mark for mark in "\t;|&," if mark in lines[index]), ",") if rows else ","
            cells = lines[index].split(mark) if rows else [""]
            cells[change[2] % len(cells)] = change[3]
            lines[index : index + 1] = [mark.join(cells)]
            text = "\n".join(lines) + "\n"
        else:
            data = change_text(text, *change)
            text = data.decode("utf-8", "surrogateescape")
    encoded = text.encode("utf-8", "surrogateescape")
    return data if data is not None and changes[-1][0] != "cell" else encoded


def _change_same_table(text: str, changes: list[list[Any]]) -> bytes:
    """Return a table that is written in another way."""
    rows = [line.split(",") for line in text.splitlines() if line and line[0] != "#"]
    mark, last = ",", "none"
    for change, seed in changes:
        random = Random(seed)
        if change == "shuffled columns":
            order = random.sample(range(len(rows[0])), len(rows[0]))
            rows = [[row[place] for place in order] for row in rows]
        elif change == "shuffled rows":
            rows[1:] = random.sample(rows[1:], len(rows) - 1)
        elif change == "unused column":
            rows = [[*row, "notes" if not index else "none"] for index, row in enumerate(rows)]
        elif change in ("spaces around", "quotes"):
            quote = "  " if change == "spaces around" else '"'
            rows = [[f"{quote}{cell}{quote}" for cell in row] for row in rows]
        elif change in ("tabs", "semicolons"):
            mark = {"tabs": "\t", "semicolons": ";"}[change]
        else:
            last = change
    written = "".join(mark.join(row) + "\n" for row in rows)
    return written.encode() if last == "none" else change_text(written, last, 1)


def _change_toml(text: str, changes: list[list[Any]]) -> bytes:
    """Return a TOML file with changed values, or with a changed text."""
    data = None
    for change in changes:
        if change[0] in ("set", "add", "delete", "rename"):
            how, seed, value, key = change
            try:
                table = tomllib.loads(text)
                _change_values(table, how, Random(seed), Literal(value), key.split("."))
            except (ValueError, RecursionError):
                continue
            text, data = write_toml(table), None
        else:
            data = change_text(text, *change)
            text = data.decode("utf-8", "surrogateescape")
    return text.encode("utf-8", "surrogateescape") if data is None else data


class Literal(str):
    """A value as TOML writes it."""


def _change_values(table: Any, how: str, random: Random, value: Literal, key: list[str]) -> None:
    places: list[tuple[Any, Any]] = []

    def collect(values: Any) -> None:
        items = values.items() if isinstance(values, dict) else enumerate(values)
        for name, below in items:
            places.append((values, name))
            if isinstance(below, (dict, list)):
                collect(below)

    collect(table)
    if how == "add" or not places:
        for name in key[:-1]:
            below = table.setdefault(name, {})
            if not isinstance(below, dict):
                table[name] = below = {}
            table = below
        table[key[-1]] = value
        return
    holder, name = random.choice(places)
    if how == "set":
        holder[name] = value
    elif how == "delete":
        del holder[name]
    elif isinstance(holder, dict):
        new = random.choice([key[-1], str(name)[:-1], "x" * 300, "a.b", "", "\x1b[31m", "é"])
        holder[new] = holder.pop(name)


def write_toml(table: Mapping[str, Any]) -> str:
    """Return plain tables as TOML, in inline form below the first level."""
    plain = [f"{_key(k)} = {_toml(v)}" for k, v in table.items() if not _is_table(v)]
    parts = []
    for name, values in table.items():
        if isinstance(values, dict):
            lines = [f"{_key(k)} = {_toml(v)}" for k, v in values.items()]
            parts.append("\n".join([f"[{_key(name)}]", *lines]))
        elif _is_table(values):
            for row in values:
                lines = [f"{_key(k)} = {_toml(v)}" for k, v in row.items()]
                parts.append("\n".join([f"[[{_key(name)}]]", *lines]))
    return "\n\n".join(["\n".join(plain), *parts]) + "\n"


def _is_table(value: Any) -> bool:
    of_rows = isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)
    return isinstance(value, dict) or of_rows


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name, re.ASCII) else json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return json.dumps(value)


SPECIAL = {
    "zero": stat.S_ISCHR, "random device": stat.S_ISCHR, "full device": stat.S_ISCHR,
    "link to zero": stat.S_ISCHR, "fifo": stat.S_ISFIFO, "socket": stat.S_ISSOCK,
}  # fmt: skip
"""By kind of path: what no command may put a file in the place of."""
DEVICES = {5: "/dev/zero", 7: "/dev/full", 9: "/dev/urandom"}


def _make_device(path: Path, minor: int) -> Path:
    """Make a device that root may lose; an ordinary user, who cannot, gets the machine's own."""
    if os.geteuid():
        return Path(DEVICES[minor])
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    return path


def make_path(kind: str, folder: Path) -> str:
    """Make something that may lie where a file or a folder is expected; return its path."""
    path = folder / "thing"
    if kind == "folder":
        path.mkdir()
        (path / "a.txt").write_text("a\n")
    elif kind in ("empty folder", "unreadable folder"):
        path.mkdir()
        path.chmod(0 if kind == "unreadable folder" else 0o755)
    elif kind in ("file", "empty file", "unreadable file", "binary"):
        path.write_bytes({"file": b"some words\n", "binary": bytes(range(256)) * 9}.get(kind, b""))
        path.chmod(0 if kind == "unreadable file" else 0o644)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind in ("zero", "random device", "full device"):
        return str(_make_device(path, {"zero": 5, "random device": 9}.get(kind, 7)))
    elif kind == "link to zero":
        path.symlink_to(_make_device(folder / "zero", 5))
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(folder):
            listener.bind("thing")
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(200 * 2**20)
    elif kind == "folder with fifo":
        path.mkdir()
        for name in ("study.json", "table.csv", "run.log", "spec.json"):
            os.mkfifo(path / name)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "dangling":
        path.symlink_to(folder / "nowhere")
    elif kind == "below a file":
        path.write_text("a file\n")
        return f"{path}/below"
    elif kind == "directory slash":
        path.write_text("a file\n")
        return f"{path}/"
    elif kind in ("newline", "surrogate", "spaces", "percent"):
        name = {"newline": "a\nb.csv", "surrogate": "bad\udcff.csv", "spaces": " a  b .csv"}
        path = folder / name.get(kind, "100%s %(x)d {0} {path}.csv")
        path.write_text(TABLES["plain.csv"] or "")
    names = {
        "long name": "n" * 300, "long path": "/".join(["d" * 200] * 25), "empty": "", "dash": "-",
        "tilde": "~nosuchuser/x",
    }  # fmt: skip
    return names.get(kind, str(path))


# --- trying --------------------------------------------------------------------------------------


def try_case(case: dict[str, Any], folder: Path) -> str | None:
    """Give the command with the changed input; return what is wrong with its answer."""
    wrong = _try(case, folder)
    is_special = SPECIAL.get(case.get("path", ""))
    path = folder / "thing"
    if not wrong and is_special and path.exists() and not is_special(path.stat().st_mode):
        return f"a {case['path']} was replaced by a file"
    return wrong


def _try(case: dict[str, Any], folder: Path) -> str | None:
    kind, command = case["kind"], case["command"]
    files = _write_files(folder)
    config = None
    if kind in ("table", "same table"):
        text = _table_text(case["base"])
        change = _change_table if kind == "table" else _change_same_table
        files["FILE"] = folder / Path(case["base"]).with_stem("changed").name
        files["FILE"].write_bytes(change(text, case["changes"]))
    elif kind == "log":
        files["FILE"] = folder / "changed.log"
        files["FILE"].write_bytes(_change_log(_logs()[case["base"]], case["changes"]))
    elif kind in ("study", "same study"):
        files["FILE"] = folder / "changed.toml"
        files["FILE"].write_bytes(_change_study(_study_text(case["base"]), case["changes"]))
    elif kind == "config":
        config = folder / "config"
        _write_config(config, case)
    elif kind == "path":
        files["PATH"] = Path(make_path(case["path"], folder))
    with_path = str(files.get("PATH", "")) if case.get("path") != "empty" else ""
    words = [_fill(word, files, with_path) for word in command]
    words = words[0].split(" ") + words[1:]
    verb = words[0]
    template = command if kind in ("table", "same table") else [verb]
    seconds = _usual_seconds(template, "" if kind in ("table", "same table") else verb)
    if verb == "data":  # Its worker may import a framework.
        seconds += 6.0
    if kind == "log":  # Real ones have a million lines.
        seconds += files["FILE"].stat().st_size / 5e5
    if "--files" in words:  # All figures, in three formats.
        seconds += 15.0
    if str(case.get("path", "")).startswith("unreadable") and os.geteuid() == 0:
        if verb in (
            "plan",
            "data",
            "run",
            "certify",
            "export",
        ):  # They start a Python, which root alone has.
            return None
        answer = _give_as_nobody(words, folder)
    else:
        with _unasked(case):
            answer = give(words, folder, config)
    if kind == "same table" and answer.code == 0 and not answer.crash:
        return _changed_answer(case, answer, folder)
    if kind == "same study" and not answer.crash:
        return _changed_plan(case, answer, folder)
    wrong = what_is_wrong(answer, base_seconds=seconds)
    wrong = wrong or _echoed(answer, kind) or _unnamed(answer, case, files)
    if not wrong and kind == "table" and answer.code == 0:
        return _changed_numbers(case, answer, files["FILE"])
    return wrong


def _unasked(case: Mapping[str, Any]) -> Any:
    """Do not ask frameworks about a study, which takes a second; most cases are refused before."""
    asked = case.get("asked", False) or "study" not in case["kind"]
    nothing = contextlib.nullcontext()
    return nothing if asked else mock.patch(ASKED, lambda runs, *_: [None] * len(runs))


ASKED = "scalewise.study.load_study._ask_framework"


def _fill(word: str, files: Mapping[str, Path], path: str) -> str:
    if "PATH" in word:
        return word.replace("PATH", path)
    number, equals, name = word.rpartition("=")
    return f"{number}{equals}{files[name]}" if name in files else word


def _write_files(folder: Path) -> dict[str, Path]:
    """Write valid inputs of each kind; return their paths by the words of commands."""
    files = {name: folder / name.lower() for name in ("EMPTY", "MISSING")}
    files["EMPTY"].mkdir()
    texts = {
        "FILE": ("table.csv", TABLES["plain.csv"]),
        "FILE2": ("second.csv", TABLES["plain.csv"]),
        "OTHER": ("other.csv", TABLES["plain.csv"]),
        "LOG": ("run_4gpu.log", "images/sec: 100.0\n" * 9),
        "OTHERLOG": ("run_2gpu.log", "images/sec: 55.0\n" * 9),
        "STUDY": ("study.toml", STUDIES["variants.toml"]),
        "SCRIPT": ("train.py", "import torch\n\nprint(torch)\n"),
    }
    for word, (name, text) in texts.items():
        files[word] = folder / name
        files[word].write_text(text or "")
    return files


def _write_config(config: Path, case: Mapping[str, Any]) -> None:
    home = config / "scalewise"
    home.mkdir(parents=True)
    path = home / case["base"]
    if case["changes"][0][0] == "path":
        made = Path(make_path(case["changes"][0][1], home))
        if os.path.lexists(made) and made != path:
            os.symlink(made, path)
        return
    path.write_bytes(_change_toml(CONFIGS[case["base"]]["text"], case["changes"]))


def _table_text(name: str) -> str:
    return TABLES[name] or (ROOT / "studies/published" / name).read_text()


def _study_text(name: str) -> str:
    text = STUDIES[name]
    if text is None and name == "demo.toml":
        text = (ROOT / "src/scalewise/starter.toml").read_text()
    return text or (ROOT / "studies" / name).read_text()


def _change_study(text: str, changes: list[list[Any]]) -> bytes:
    """Return a changed study; changes of ``SAME_STUDY`` keep what it asks for."""
    last = None
    for change in changes:
        if change[0] in ("dotted keys", "shuffled tables"):
            table = tomllib.loads(text)
            if change[0] == "shuffled tables":
                order = Random(change[1]).sample([*table], len(table))
                table = {name: table[name] for name in order}
            text = write_toml(table)
        else:
            last = change
            if len(changes) > 1 and change[0] in ("blank lines", "comment"):
                text, last = change_text(text, *change).decode(), None
    if any(change[0] in SAME_STUDY[2:] for change in changes):
        return change_text(text, *last) if last else text.encode()
    return _change_toml(text, changes)


def _change_log(text: str, changes: list[list[Any]]) -> bytes:
    data = text.encode()
    for change in changes:
        if change[0] == "number":
            numbers = list(re.finditer(r"\d+(?:\.\d+)?", text))
            if numbers:
                place = numbers[change[1] % len(numbers)]
                text = text[: place.start()] + change[2] + text[place.end() :]
            data = text.encode("utf-8", "surrogateescape")
        else:
            data = change_text(text, *change)
            text = data.decode("utf-8", "surrogateescape")
    return data


def _usual_seconds(words: list[str], verb: str) -> float:
    """Return the processor time of a command with valid input; its modules are imported then."""
    key = " ".join(words)
    if key not in _usual:
        with tempfile.TemporaryDirectory() as name:
            files = _write_files(Path(name))
            given = [_fill(word, files, "") for word in WARM.get(verb, words)]
            answer = give(given[0].split(" ") + given[1:], Path(name))
            _usual[key] = answer.seconds
            if answer.crash or answer.code not in (0, 1):
                raise AssertionError(f"{given} fails as it is: {answer}")
    return _usual[key]


_usual: dict[str, float] = {}
WARM = {
    "summary": ["summary", "FILE"], "measure": ["measure", "FILE"],
    "predict": ["predict", "FILE", "--at", "64"], "advise": ["advise", "FILE", "--for", "time"],
    "plugins": ["plugins"],
    "plan": ["plan", "STUDY"], "import": ["import", "LOG"], "run": ["plan", "STUDY"],
    "certify": ["certify", "EMPTY"], "data": ["data check", "EMPTY"], "status": ["status", "EMPTY"],
    "report": ["report", "FILE", "-o", "out.html"], "compare": ["compare", "FILE", "OTHER"],
    "export": ["export", "EMPTY"], "port": ["port", "SCRIPT"], "explain": ["explain", "EMPTY"],
    "cancel": ["cancel", "EMPTY"], "init": ["init", "new.toml"], "catalog": ["catalog"],
    "demo": ["plugins"], "nosuch": ["plugins"],
}  # fmt: skip
"""The valid command of a verb whose own words are changed or unsuitable."""


def _give_as_nobody(words: list[str], folder: Path) -> Answer:
    """Give a command as an ordinary user, whom permissions bind."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, 65534, 65534, follow_symlinks=False)
    os.setegid(65534)
    os.seteuid(65534)
    try:
        return give(words, folder)
    finally:
        os.seteuid(0)
        os.setegid(0)


LONG = re.compile(r"x{90}|9{90}|0{90}|k{90}|\({90}|\[{90}|(?:1,){45}|é{90}|🙂{90}|(?:1, ){30}")


def _echoed(answer: Answer, kind: str) -> str | None:
    """Return a value that is printed in full although it is long."""
    shown = answer.err if kind == "log" or answer.code == 0 else answer.err + answer.out
    if found := LONG.search(shown):
        start = max(0, found.start() - 200)
        return f"a long value is printed in full: {shown[start : found.end()]!r}"
    return None


def _unnamed(answer: Answer, case: Mapping[str, Any], files: Mapping[str, Path]) -> str | None:
    """Return an error that names neither the file nor anything of what was changed."""
    if answer.code not in (1, 2) or case["kind"] in ("option", "config", "study"):
        return None
    errors = (line for line in answer.err.splitlines() if re.match("[eE]rror: ", line))
    error = next(errors, answer.out)  # ``data check`` prints what it has found.
    names = [
        files["FILE"].stem,
        " - ",
        "below",
        "weights",
        "devices",
        "throughput",
        "needs",
        "thing",
        "/dev/",
        "--",
        *case["command"][1:],  # The value of an option that does not fit the file.
    ]
    if case["kind"] == "path":
        names += [
            "nnn",
            "ddd",
            "a b",
            "bad",
            "100%",
            "nosuchuser",
            " -",
            "empty",
            "''",
            "study",
            "'.'",
            ".",
        ]
    return None if any(name in error for name in names) else f"it does not say what: {error}"


def _points(out: str) -> list[dict[str, Any]]:
    values = json.loads(out)
    curves = values.get("curves", [])
    return [point for curve in curves for point in curve["points"]]


def _changed_numbers(case: Mapping[str, Any], answer: Answer, path: Path) -> str | None:
    """Return a number of a plain table that the answer does not have as the table has it."""
    if case["command"][:1] != ["measure"] or "--json" not in case["command"]:
        return None
    if case["base"] != "plain.csv" or any(change[0] != "cell" for change in case["changes"]):
        return None
    given: dict[int, list[float]] = {}
    for line in path.read_text().splitlines()[1:]:
        cells = line.split(",")
        if len(cells) != 2:
            return None
        try:
            given.setdefault(int(cells[0]), []).append(float(cells[1]))
        except ValueError:
            return None  # As people write it: test_tables compares those.
    for point in _points(answer.out):
        values = given.get(point["devices"], [])
        rate = point["throughput"]["value"]
        if not values or not min(values) * 0.999999 <= rate <= max(values) * 1.000001:
            return f"{point['devices']} devices: {rate} instead of {values}"
    missing = given.keys() - {point["devices"] for point in _points(answer.out)}
    return f"no point for {sorted(missing)} devices" if missing else None


def _changed_answer(case: Mapping[str, Any], answer: Answer, folder: Path) -> str | None:
    """Return how the answer about a table differs from that of the same table as it was."""
    plain = folder / "changed.csv"
    plain.write_text(_table_text(case["base"]))
    words = [str(plain) if word == "FILE" else word for word in case["command"]]
    expected = give(words, folder)
    if wrong := what_is_wrong(answer, base_seconds=1.0):
        return wrong
    pairs = [_without_reading(json.loads(each.out)) for each in (expected, answer)]
    return None if pairs[0] == pairs[1] else f"another answer: {pairs[0]} and {pairs[1]}"[:2000]


def _without_reading(values: Any) -> Any:
    """Return values without what says how a table was read."""
    if isinstance(values, dict):
        unlike = ("read_as", "source", "study", "warnings", "reading")
        return {k: _without_reading(v) for k, v in values.items() if k not in unlike}
    return [_without_reading(value) for value in values] if isinstance(values, list) else values


def _changed_plan(case: Mapping[str, Any], answer: Answer, folder: Path) -> str | None:
    """Return how the plan of a study differs from that of the same study as it was."""
    plain = folder / "plain.toml"
    plain.write_text(_study_text(case["base"]))
    with _unasked(case):
        expected = give(["plan", str(plain)], folder)
    if wrong := what_is_wrong(answer, base_seconds=3.0):
        return wrong
    same = (expected.code, expected.out) == (answer.code, answer.out)
    return None if same else f"another plan: {answer.err[-500:]}{answer.out[-500:]}"
