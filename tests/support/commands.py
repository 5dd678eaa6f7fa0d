"""Run ``scalewise`` and small programs in processes of their own, as a user would."""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from builders import run_values
from scalewise import api, plugins  # noqa: F401 - what most commands import as they begin
from scalewise.cli import main

COMMAND = Path(sys.executable).parent / "scalewise"


def study_toml(topologies=("1x1", "1x2", "1x4"), name="a study", **changes):
    """Return a fake study's file; JSON's numbers, text and lists are TOML too."""
    run = run_values(**changes)
    del run["topology"]
    settings = "".join(f"{key} = {json.dumps(value)}\n" for key, value in run.items())
    return (
        f"name = {json.dumps(name)}\n[run]\n{settings}[vary]\n"
        f"topology = {json.dumps(list(topologies))}\n"
    )


def run_command(
    *words: object,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``scalewise`` in a fork of this process, where ``before`` is called first.

    A fork need not import it, which takes a second; ``COMMAND`` is the installed program.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        texts = [str(word) for word in words]
        args = (texts, cwd, dict(env or os.environ), (out, err), before)
        process = context.Process(target=_main, args=args)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            process.start()  # Newer Pythons warn of threads, of which the test process has one.
        try:
            process.join()
        finally:  # A test that takes too long is interrupted here.
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(texts, process.exitcode, out.read(), err.read())


def _main(words, cwd, env, files, before):
    """Be the command, in its folder, with its environment, output files and arguments."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    plugins.available.cache_clear()
    sys.argv = ["scalewise", *words]
    sys.modules["__main__"] = ModuleType("__main__")  # It names the program in the help.
    sys.stdout, sys.stderr = files
    for number, file in enumerate(files, 1):
        os.dup2(file.fileno(), number)
    if before:
        before()
    main()


def modules_after(code: str) -> set[str]:
    """Return the top-level modules a fresh interpreter holds after running ``code``."""
    ask = f"{code}\nimport json, sys; print(json.dumps([*sys.modules]), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def install_framework(folder: Path, body: str) -> dict[str, str]:
    """Install a framework ``odd`` that runs ``body`` before training; return the environment."""
    info = folder / "stranger-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[scalewise.frameworks]\nodd = odd:Odd\n")
    (folder / "odd.py").write_text(
        "import os, sys, time\nfrom scalewise.frameworks.fake import Fake\n"
        "class Odd(Fake):\n"
        "    def session(self, spec, rank, probe):\n" + textwrap.indent(body, " " * 8) + "\n"
        "        return super().session(spec, rank, probe)\n"
    )
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}
