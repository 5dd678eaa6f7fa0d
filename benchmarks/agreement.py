"""Whether the light measurement agrees with the engine's own profiler.

    python benchmarks/agreement.py [--device cuda] [--backend nccl] [--devices 2] [--trace 15]

Runs a script with much to exchange and one with a slow loader under
``scalewise run --trace``, and holds exposed communication and waiting for
input against the trace of the same steps, rank by rank. Two ranks may share
one device over Gloo. Exits with 1 when they differ by more than 10 % where
they are at least 10 % of a step, or when there was nothing to compare.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[1] / "tests" / "scripts" / "heavy.py"
SIZES = {
    "cpu": ["--width", "512", "--depth", "6", "--batch-size", "32"],
    "cuda": ["--width", "2048", "--depth", "8", "--batch-size", "64", "--repeat", "128"],
}
CASES = {
    "exposed communication": [],
    "input": ["--slow-loader", "0.0005"],
}
"""What each script is heavy in, and what makes it so."""


def main() -> None:
    """Run both scripts and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=list(SIZES), default="cpu")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--devices", default="2")
    parser.add_argument("--trace", default="15", help="steps; few are at the mercy of one bad one")
    asked = parser.parse_args()
    missed = False
    for heavy, words in CASES.items():
        where = ["--device", asked.device, "--backend", asked.backend]
        point = traced([*SIZES[asked.device], *where, *words], asked.devices, asked.trace)
        print(f"heavy in {heavy}: {asked.devices} ranks, {asked.device}, {asked.backend}")
        checks = point["trace"]["checks"]
        for each in checks:
            print(line(each))
        missed |= any(each["agrees"] is False for each in checks)
        missed |= not any(each["agrees"] and each["quantity"] == heavy for each in checks)
    sys.exit("a claim does not hold" if missed else 0)


def line(check: dict[str, Any]) -> str:
    """Return one comparison in words."""
    light, trace = 1000 * check["light"], 1000 * check["traced"]
    ratio = "–" if check["ratio"] is None else f"{check['ratio']:.3f}"
    verdict = {True: "agrees", False: "DIFFERS", None: "too small to say"}[check["agrees"]]
    return (
        f"  rank {check['rank']}  {check['quantity']:<22} light {light:8.3f} ms  trace "
        f"{trace:8.3f} ms  ratio {ratio:>6}  {100 * check['share']:5.1f} % of a step  {verdict}"
    )


def traced(words: list[str], devices: str, steps: str) -> dict[str, Any]:
    """Run the script with a trace and return what explain makes of it."""
    scalewise = [sys.executable, "-c", "from scalewise.cli import main; main()"]
    with tempfile.TemporaryDirectory() as folder:
        run = ["run", "--on", devices, "--trace", steps, "-o", folder, "--", str(SCRIPT), *words]
        subprocess.run([*scalewise, *run], check=True, stdout=subprocess.DEVNULL)
        told = subprocess.run(
            [*scalewise, "explain", folder, "--json"], check=True, stdout=subprocess.PIPE
        )
    point: dict[str, Any] = json.loads(told.stdout)["curves"][0]["points"][-1]
    return point


if __name__ == "__main__":
    main()
