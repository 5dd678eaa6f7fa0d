"""A user's own program: how its words are to be started, and which file they mean.

A script, a module (``-m``) and a console script start once per device, under
torchrun; once per node, where one process has all its devices. Any other command
starts once per node and makes its own ranks; in its words ``{devices}`` (of a node),
``{world}``, ``{nodes}``, ``{node_rank}``, ``{master}`` and ``{port}`` are filled in.
"""

import ast
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.machinery import PathFinder
from pathlib import Path

from scalewise.errors import SpecError

PLACEHOLDERS = ("devices", "world", "nodes", "node_rank", "master", "port")
LAUNCHER_COMMANDS = (
    "accelerate", "deepspeed", "horovodrun", "mpiexec", "mpirun", "srun", "torchrun", "ray",
)  # fmt: skip
"""Console scripts that start ranks themselves."""
LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
)
PARALLEL_LIBRARIES = (
    "accelerate",
    "deepspeed",
    "horovod",
    "ignite",
    "lightning",
    "pytorch_lightning",
)
"""Libraries that make a script parallel themselves."""
KERAS_MODULES = ("tensorflow", "keras")
"""What a script imports whose one process has all devices of its node."""
TORCHRUN_FLAGS = ("-m", "--no-python")
"""How torchrun is told that what follows is not a file."""
_PYTHON = re.compile(r"(?:pypy|python)[0-9.]*")


@dataclass(frozen=True, slots=True)
class Program:
    """A program's words, taken apart."""

    interpreter: str
    """The Python that runs it, and so the agent above it."""
    words: tuple[str, ...]
    """What follows the interpreter, or the whole command."""
    whole: bool
    """Whether it is a command that makes its own ranks, started once per node."""
    script: Path | None = None
    """The file that will run, if it is known."""

    def by(self, python: str) -> "Program":
        """Return it for another Python, unless its words name one."""
        if self.interpreter != sys.executable:
            return self
        ours = self.words[0] == sys.executable
        words = (python, *self.words[1:]) if self.whole and ours else self.words
        return replace(self, interpreter=python, words=words)

    def argv(self, agent: Sequence[str], places: Mapping[str, object]) -> tuple[str, ...]:
        """Return the command line; ``agent`` are torchrun's own words."""
        words = self.words
        if self.whole:
            return self._filled(places)
        # torchrun takes a script's own --start for an abbreviation of --start-method;
        # after -- it looks for no options of its own.
        flags, rest = (words[:1], words[1:]) if words[0] in TORCHRUN_FLAGS else ((), words)
        return (self.interpreter, "-m", "torch.distributed.run", *agent, *flags, "--", *rest)

    def direct(self, places: Mapping[str, object]) -> list[str]:
        """Return the command line of one rank, without an agent above it."""
        if self.whole:
            return list(self._filled(places))
        words = list(self.words)
        return words[1:] if words[0] == "--no-python" else [self.interpreter, *words]

    def _filled(self, places: Mapping[str, object]) -> tuple[str, ...]:
        """Return the whole command with its placeholders filled in, but for the Python's path."""
        return tuple(
            word if word == self.interpreter else fill_placeholders(word, places)
            for word in self.words
        )


def parse_program(words: Sequence[str]) -> Program:
    """Take a program's words apart; refuse what cannot be started."""
    first, rest = words[0], tuple(words[1:])
    whole = any("{" + place + "}" in word for word in words for place in PLACEHOLDERS)
    script = first == "-m" or first.endswith(".py")
    if whole:
        before = (sys.executable,) if script else ()
        return Program(
            sys.executable, (*before, *words), whole=True, script=_first_python_file(words)
        )
    if script:
        return _parse_python(sys.executable, tuple(words))
    found = shutil.which(first)
    if found and _PYTHON.fullmatch(Path(first).name) and rest:
        return _parse_python(found, rest)
    if found is None:
        there = Path(first).exists()
        raise SpecError(
            f"{first} {'cannot be started: it is not a command' if there else 'is not there'}",
            hint=_not_found_hint(first),
        )
    if Path(first).name not in LAUNCHER_COMMANDS and _is_python(Path(found)):
        return Program(
            _shebang(Path(found)), ("--no-python", found, *rest), whole=False, script=Path(found)
        )
    return Program(sys.executable, tuple(words), whole=True, script=_first_python_file(words))


def _not_found_hint(command: str) -> str:
    """Say what to give instead of a command that was not found."""
    beside = Path(sys.executable).parent / command
    if command == beside.name and beside.is_file():
        return f"it is in scalewise's own environment: give {beside}, or activate that one"
    return "give a Python file, -m MODULE, or a command that is on the PATH"


def _parse_python(interpreter: str, words: tuple[str, ...]) -> Program:
    """Take apart what would follow ``python``."""
    first = words[0]
    if first == "-m":
        if len(words) < 2:
            raise SpecError("-m needs a module's name", hint="for example -m package.train")
        if words[1] in LAUNCHER_MODULES:
            return Program(
                interpreter, (interpreter, *words), whole=True, script=_first_python_file(words)
            )
        return Program(interpreter, words, whole=False, script=_module_file(words[1], interpreter))
    if first.startswith("-"):  # Options of the interpreter itself, which torchrun cannot pass on.
        return Program(
            interpreter,
            ("--no-python", interpreter, *words),
            whole=False,
            script=_first_python_file(words),
        )
    path = Path(first)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise SpecError(f"the script {first} {what}", hint="give the path of a Python file")
    if interpreter == sys.executable:
        _refuse_not_python(path)
    return Program(interpreter, words, whole=False, script=path)


def fill_placeholders(word: str, places: Mapping[str, object]) -> str:
    """Return a word with its placeholders filled in, in one pass; other braces stay.

    >>> filled("--nproc={devices} {x}", {"devices": 4})
    '--nproc=4 {x}'
    """
    return re.sub(
        r"\{(\w+)\}", lambda match: str(places[match[1]]) if match[1] in places else match[0], word
    )


def script_digest(words: Sequence[str]) -> str | None:
    """Return a hash of the script's content, if its file is known."""
    script = parse_program(words).script
    if script is None:
        return None
    try:
        return blake2b(script.read_bytes(), digest_size=6).hexdigest()
    except OSError as why:
        raise SpecError(f"cannot read {script}: {why.strerror}") from why


def _refuse_not_python(path: Path) -> None:
    try:
        ast.parse(path.read_bytes(), filename=str(path))
    except OSError as why:
        raise SpecError(f"cannot read {path}: {why.strerror}") from why
    except (SyntaxError, ValueError) as why:
        line = f", line {why.lineno}" if isinstance(why, SyntaxError) and why.lineno else ""
        said = why.msg if isinstance(why, SyntaxError) else why
        raise SpecError(f"{path}{line} is not Python: {said}") from why


def _module_file(name: str, interpreter: str) -> Path | None:
    """Return a module's file where this Python can tell it; refuse one that is not there.

    Its packages are looked up and not imported: that would run them here.
    """
    if interpreter != sys.executable:
        return None
    path: list[str] | None = [str(Path.cwd()), *sys.path]
    found = None
    for part in (*name.split("."), "__main__"):
        if part == "__main__" and (found is None or path is None):
            break
        found = PathFinder.find_spec(part, path)
        if found is None:
            raise SpecError(f"there is no module {name}", hint="run from the folder that holds it")
        path = list(found.submodule_search_locations or []) or None
    return Path(found.origin) if found and found.origin else None


def _first_python_file(words: Sequence[str]) -> Path | None:
    """Return the first of the words that is a Python file."""
    return next((Path(w) for w in words if w.endswith(".py") and Path(w).is_file()), None)


def _is_python(path: Path) -> bool:
    return bool(_shebang(path))


def _shebang(path: Path) -> str:
    """Return the Python that a console script names in its first line, or nothing."""
    try:
        with path.open("rb") as file:
            words = file.readline(256).decode(errors="replace").strip().split()
    except OSError:
        return ""
    if not words or not words[0].startswith("#!"):
        return ""
    asked = words[-1] if words[0].endswith("/env") else words[0][2:]
    return (shutil.which(asked) or "") if _PYTHON.fullmatch(Path(asked).name) else ""


def parallel_library(script: Path) -> str:
    """Return the library that makes a script parallel itself, if it imports one."""
    return _first_import(script, PARALLEL_LIBRARIES)


def detect_framework(words: Sequence[str]) -> str:
    """Return the framework that a program's script trains with, where that is not PyTorch."""
    script = parse_program(words).script
    if script is None or _first_import(script, ("torch", *PARALLEL_LIBRARIES)):
        return ""
    return "tensorflow" if _first_import(script, KERAS_MODULES) else ""


def _first_import(script: Path, modules: Sequence[str]) -> str:
    """Return the first of these modules that a script imports, if it imports one."""
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"^\s*(?:import|from)\s+({'|'.join(modules)})\b", text, re.MULTILINE)
    return found[1] if found else ""
