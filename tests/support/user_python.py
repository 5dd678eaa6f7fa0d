"""A Python that an ordinary user can start, with this checkout's scalewise and torch in it.

The Python that runs the tests may lie in a folder that is shut for others, and so may the
checkout: this one is made from the system's own, in a place open to all, and kept there.
What it needs comes from the environment of the tests where others can read that and its
Python is alike; else it is installed. Run as a script, it makes it ready and says where.
"""

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
SYSTEM = "/usr/bin/python3"
PLACE = Path("/opt/scalewise-tests") / hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:12]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")
WANTED = ("pyproject.toml", "constraints.txt")


def ready() -> Path:
    """Return the user's Python, made or brought up to date where it is not."""
    python = PLACE / "bin" / "python"
    packages, code = _digest(WANTED) + sys.prefix, _digest(["src"])
    if _done("packages") != packages:
        shutil.rmtree(PLACE, ignore_errors=True)
        _call(SYSTEM, "-m", "venv", PLACE)
        _install(python)
        _mark("packages", packages)
    if _done("code") != code:
        installed = _site(python) / "scalewise"
        shutil.rmtree(installed)
        _call("cp", "-r", CHECKOUT / "src" / "scalewise", installed)
        _call(python, "-m", "compileall", "-q", installed)
        _mark("code", code)
    return python


def _install(python: Path) -> None:
    """Install this checkout, and its packages where those of this environment cannot be lent."""
    here = Path(sysconfig.get_paths()["purelib"])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as folder:  # A build leaves its files where it was.
        for name in SOURCES:
            _call("cp", "-r", CHECKOUT / name, folder)
        if here.parts[-2:] == _site(python).parts[-2:] and _open_to_all(here):
            (_site(python) / "lent.pth").write_text(f"{here}\n")
            _call(*pip, "--no-deps", folder)
        else:
            _call(*pip, "-c", CHECKOUT / "constraints.txt", f"{folder}[torch,digits]")


def _site(python: Path) -> Path:
    """Return where a Python keeps its packages: .../python3.11/site-packages."""
    return Path(_call(python, "-c", "import sysconfig as s; print(s.get_path('purelib'))").strip())


def _open_to_all(folder: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def _call(*argv: str | Path) -> str:
    # Readable for others, whatever the caller keeps to himself.
    return subprocess.run(argv, umask=0o022, stdout=subprocess.PIPE, text=True, check=True).stdout


def _digest(names: Iterable[str]) -> str:
    """Return what changes with the content of these files, or of the code in these folders."""
    total = hashlib.sha256()
    for name in names:
        path = CHECKOUT / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                total.update(str(file.relative_to(CHECKOUT)).encode() + file.read_bytes())
    return total.hexdigest()


def _done(what: str) -> str:
    mark = PLACE / f".{what}"
    return mark.read_text() if mark.exists() else ""


def _mark(what: str, done: str) -> None:
    (PLACE / f".{what}").write_text(done)


if __name__ == "__main__":
    print(ready())
