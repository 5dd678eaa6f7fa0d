"""A user's program: how to start it, and which script file its arguments name.

A Python program is started once per device (under torchrun) or once per node. Any other command is
started once per node. In it the placeholders {devices} (devices per node), {world}, {nodes},
{node_rank}, {master} and {port} are replaced.
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

from scalewise.errors import SpecError, cut
from scalewise.files import access_hint, open_regular, read_file

PLACEHOLDERS = ("devices", "world", "nodes", "node_rank", "master", "port")
LAUNCHER_COMMANDS = (
    "accelerate", "deepspeed", "horovodrun", "mpiexec", "mpirun", "srun", "torchrun", "ray",
)  # fmt: skip
"""Commands that start ranks themselves."""
LAUNCHER_MODULES = (
    "torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
)  # fmt: skip
PARALLEL_LIBRARIES = (
    "accelerate", "deepspeed", "horovod", "ignite", "lightning", "pytorch_lightning",
)  # fmt: skip
"""Libraries that parallelize a script themselves."""
KERAS_MODULES = ("tensorflow", "keras")
"""A script that imports one of these trains in one process with all devices of its node."""
TORCHRUN_FLAGS = ("-m", "--no-python")
"""torchrun's options for a program that is not a script file."""
SCRIPT_LIMIT = 16 << 20
"""Bytes of the largest script that is read."""
_PYTHON = re.compile(r"(?:pypy|python)[0-9.]*")


@dataclass(frozen=True, slots=True)
class Program:
    """The parsed arguments of a user's program."""

    interpreter: str
    """The Python that runs the program, and torchrun's agent if it is used."""
    arguments: tuple[str, ...]
    """The arguments of the interpreter; if ``is_command``, the complete command."""
    script: Path | None = None
    """The file that will run, if it is known."""
    is_command: bool = False
    """Whether the program is a complete command, which starts the ranks of its node itself."""

    def with_python(self, python: str) -> "Program":
        """Return the program for another Python, unless the user named a Python."""
        if self.interpreter != sys.executable:
            return self
        arguments = self.arguments
        if self.is_command and arguments[0] == sys.executable:
            arguments = (python, *arguments[1:])
        return replace(self, interpreter=python, arguments=arguments)

    def agent_command(
        self, options: Sequence[str], values: Mapping[str, object]
    ) -> tuple[str, ...]:
        """Return the command line under torchrun; a complete command stays without torchrun."""
        if self.is_command:
            return self._filled(values)
        flag_count = 1 if self.arguments[0] in TORCHRUN_FLAGS else 0
        # torchrun would read a script's --start as an abbreviation of --start-method;
        # after -- it parses no options.
        flags, script = self.arguments[:flag_count], self.arguments[flag_count:]
        agent = (self.interpreter, "-m", "torch.distributed.run", *options, *flags)
        return (*agent, "--", *script)

    def direct_command(self, values: Mapping[str, object]) -> list[str]:
        """Return the command line of one rank, without torchrun."""
        if self.is_command:
            return list(self._filled(values))
        arguments = list(self.arguments)
        return arguments[1:] if arguments[0] == "--no-python" else [self.interpreter, *arguments]

    def _filled(self, values: Mapping[str, object]) -> tuple[str, ...]:
        """Return the complete command, its placeholders replaced except in the path of Python."""
        return tuple(
            argument if argument == self.interpreter else fill_placeholders(argument, values)
            for argument in self.arguments
        )


def parse_program(arguments: Sequence[str]) -> Program:
    """Parse the arguments of a user's program; refuse what cannot be started."""
    first, following = arguments[0], tuple(arguments[1:])
    is_command = any(
        "{" + name + "}" in argument for argument in arguments for name in PLACEHOLDERS
    )
    is_python = first == "-m" or first.endswith(".py")
    if is_command:
        python = (sys.executable,) if is_python else ()
        return _complete_command(sys.executable, (*python, *arguments))
    if is_python:
        return _parse_python(sys.executable, tuple(arguments))
    path = shutil.which(first)
    if path and _PYTHON.fullmatch(Path(first).name) and following:
        return _parse_python(path, following)
    if path is None:
        raise _not_found(first)
    if Path(first).name not in LAUNCHER_COMMANDS and (python_path := _shebang_python(Path(path))):
        return Program(python_path, ("--no-python", path, *following), Path(path))
    return _complete_command(sys.executable, tuple(arguments))


def _not_found(command: str) -> SpecError:
    """Return the error for a command that is not on the PATH."""
    problem = "is not there"
    if not command:
        command = "an empty command"
    if Path(command).exists():
        problem = "cannot be started: it is not a command"
    hint = "give a Python file, -m MODULE, or a command that is on the PATH"
    installed = Path(sys.executable).parent / command
    if command == installed.name and installed.is_file():
        hint = f"it is in scalewise's environment: give {installed}, or activate that environment"
    return SpecError(f"{command} {problem}", hint=hint)


def _complete_command(interpreter: str, arguments: tuple[str, ...]) -> Program:
    """Return the program for a command that starts the ranks itself."""
    return Program(interpreter, arguments, _first_python_file(arguments), is_command=True)


def _parse_python(interpreter: str, arguments: tuple[str, ...]) -> Program:
    """Parse the arguments that would follow ``python``."""
    first = arguments[0]
    if first == "-m":
        if len(arguments) < 2:
            raise SpecError("-m needs a module's name", hint="for example -m package.train")
        if arguments[1] in LAUNCHER_MODULES:
            return _complete_command(interpreter, (interpreter, *arguments))
        return Program(interpreter, arguments, _module_file(arguments[1], interpreter))
    if first.startswith("-"):  # Options of the interpreter itself, which torchrun cannot pass on.
        command = ("--no-python", interpreter, *arguments)
        return Program(interpreter, command, _first_python_file(arguments))
    path = Path(first)
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "is not there"
        raise SpecError(f"the script {first} {problem}", hint="give the path of a Python file")
    if interpreter == sys.executable:  # Another Python may have another syntax.
        try:
            ast.parse(read_file(path, SCRIPT_LIMIT), filename=str(path))
        except OSError as error:
            text = f"cannot read {path}: {error.strerror}"
            raise SpecError(text, hint=access_hint(error)) from error
        except SyntaxError as error:
            line = f", line {error.lineno}" if error.lineno else ""
            text = f"{path}{line} is not Python: {error.msg}"
            raise SpecError(text, hint="mend it, or give the script that trains") from error
        except (ValueError, RecursionError, MemoryError) as error:
            text = f"{path} is not Python: {cut(str(error), 200) or 'it is nested too deeply'}"
            raise SpecError(text, hint="give the script that trains") from error
    return Program(interpreter, arguments, path)


def fill_placeholders(argument: str, values: Mapping[str, object]) -> str:
    """Return an argument with its placeholders replaced; other words in braces stay.

    >>> fill_placeholders("--nproc={devices} {x}", {"devices": 4})
    '--nproc=4 {x}'
    """
    return re.sub(r"\{(\w+)\}", lambda match: str(values.get(match[1], match[0])), argument)


def script_digest(arguments: Sequence[str]) -> str | None:
    """Return a hash of the script's content; None if its file is unknown."""
    script = parse_program(arguments).script
    if script is None:
        return None
    try:
        return blake2b(read_file(script, SCRIPT_LIMIT), digest_size=6).hexdigest()
    except OSError as error:
        text = f"cannot read {script}: {error.strerror}"
        raise SpecError(text, hint=access_hint(error)) from error


def _module_file(name: str, interpreter: str) -> Path | None:
    """Return a module's file, None for another Python; refuse a module that does not exist."""
    if interpreter != sys.executable:
        return None
    search_path: list[str] | None = [str(Path.cwd()), *sys.path]
    module_spec = None
    # find_spec of importlib.util would import the packages, and so run their code here.
    for part in (*name.split("."), "__main__"):
        # ``python -m`` runs the __main__ of a package; a plain module has no submodules.
        if part == "__main__" and (module_spec is None or search_path is None):
            break
        module_spec = PathFinder.find_spec(part, search_path)
        if module_spec is None:
            raise SpecError(f"there is no module {name}", hint="run from the folder that holds it")
        search_path = list(module_spec.submodule_search_locations or []) or None
    return Path(module_spec.origin) if module_spec and module_spec.origin else None


def _first_python_file(arguments: Sequence[str]) -> Path | None:
    """Return the first argument that is a Python file; None without any."""
    scripts = (Path(argument) for argument in arguments if argument.endswith(".py"))
    return next((script for script in scripts if script.is_file()), None)


def _shebang_python(path: Path) -> str:
    """Return the Python in the first line of a console script; empty if there is none."""
    try:
        with open_regular(path) as file:
            parts = file.readline(256).decode(errors="replace").strip().split()
    except OSError:
        return ""
    if not parts or not parts[0].startswith("#!"):
        return ""
    interpreter = parts[-1] if parts[0].endswith("/env") else parts[0][2:]
    return (shutil.which(interpreter) or "") if _PYTHON.fullmatch(Path(interpreter).name) else ""


def parallel_library(script: Path) -> str:
    """Return the library that parallelizes a script; empty if it imports none."""
    return _first_import(script, PARALLEL_LIBRARIES)


def detect_framework(arguments: Sequence[str]) -> str:
    """Return ``tensorflow`` if a program's script imports it and not PyTorch; else empty."""
    script = parse_program(arguments).script
    if script is None or _first_import(script, ("torch", *PARALLEL_LIBRARIES)):
        return ""
    return "tensorflow" if _first_import(script, KERAS_MODULES) else ""


def _first_import(script: Path, modules: Sequence[str]) -> str:
    """Return the first of these modules that a script imports; empty without any."""
    try:
        text = read_file(script, SCRIPT_LIMIT).decode(errors="replace")
    except OSError:
        return ""
    match = re.search(rf"^\s*(?:import|from)\s+({'|'.join(modules)})\b", text, re.MULTILINE)
    return match[1] if match else ""
