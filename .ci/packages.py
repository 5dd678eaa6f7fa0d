"""Pin the packages that CI installs, and refuse files that are not those that were pinned.

    python .ci/packages.py pin .venv           writes constraints.txt and constraints.sha256
    python .ci/packages.py check report.json   compares what `pip install --report` says it fetched

pip itself compares hashes only where every requirement has one, which a checkout has not.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINS, HASHES = ROOT / "constraints.txt", ROOT / "constraints.sha256"
HEADER = (
    "# The versions that CI runs with; `make pins` writes this. Users are free to choose others.\n"
)
NOT_PINNED = ("scalewise", "pip", "setuptools")
"""They come from the checkout and with Python."""


def main() -> None:
    """Pin what an environment has, or check what was installed."""
    command, argument = sys.argv[1], Path(sys.argv[2])
    if command == "pin":
        pins = installed(argument)
        PINS.write_text(HEADER + "".join(f"{name}=={pins[name]}\n" for name in sorted(pins)))
        hashes = {name: sorted(values) for name, values in known_hashes(pins).items()}
        HASHES.write_text("".join(f"{name} {' '.join(hashes[name])}\n" for name in sorted(hashes)))
    elif problems := unknown_files(json.loads(argument.read_text())):
        sys.exit("\n".join(problems))


def installed(environment: Path) -> dict[str, str]:
    """Return the version of each package of an environment; without +cpu or the like."""
    found = {}
    folders = [*environment.glob("lib/python3*/site-packages"), environment / "libraries"]
    for info in [info for folder in folders for info in folder.glob("*.dist-info")]:
        name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        if _normal(name) not in NOT_PINNED:
            found[_normal(name)] = version.partition("+")[0]
    return found


def known_hashes(pins: dict[str, str]) -> dict[str, set[str]]:
    """Return the hashes of all files that the index and PIP_FIND_LINKS have of each package."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "pins.in"
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        uv = Path(sys.executable).parent / "uv"
        command = [uv, "pip", "compile", "--no-deps", "--generate-hashes", "--system-certs"]
        done = subprocess.run([*command, wanted], check=True, capture_output=True, text=True)
    found: dict[str, set[str]] = {}
    for name, digest in re.findall(r"^([\w.-]+)==|--hash=sha256:(\w+)", done.stdout, re.MULTILINE):
        if name:
            values = found.setdefault(_normal(name), set())
        else:
            values.add(digest)
    for wheel in Path(os.environ.get("PIP_FIND_LINKS", os.devnull)).glob("*.whl"):
        name, version = wheel.name.split("-")[:2]
        if pins.get(_normal(name)) == version.partition("+")[0]:
            found[_normal(name)].add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    return found


def unknown_files(report: dict) -> list[str]:
    """Return a sentence for each installed package whose file is not one that was pinned."""
    lines = (line.split() for line in HASHES.read_text().splitlines())
    known = {name: set(values) for name, *values in lines}
    problems = []
    for item in report["install"]:
        name, archive = _normal(item["metadata"]["name"]), item["download_info"].get("archive_info")
        if archive and name not in NOT_PINNED:
            if name not in known:
                problems.append(f"{name} is not pinned: make pins")
            elif archive["hashes"]["sha256"] not in known[name]:
                problems.append(f"{name}: {item['download_info']['url']} has an unknown sha256")
    return problems


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
