"""What a simulated study of 1 to 1024 devices costs, in processor seconds.

    python benchmarks/fake.py

Counts everything: the command itself, the process of every run, and all 2,047
rank files it writes. Exits with 1 when the claim does not hold.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 5.0
STUDY = """
name = "fake"
[run]
framework = "fake"
batch = 64
steps = 50
[vary]
topology = ["1x1", "1x2", "1x4", "1x8", "2x8", "4x8", "8x8", "16x8", "32x8", "64x8", "128x8"]
"""


def main() -> None:
    """Run the study in a folder of its own and tell what it took."""
    command = Path(sys.executable).parent / "scalewise"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "study.toml").write_text(STUDY)
        done = subprocess.run(
            [str(command), "run", "study.toml"], cwd=folder, capture_output=True, text=True
        )
    if done.returncode:
        sys.exit(done.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime
    print(f"11 runs on 1 to 1024 devices: {seconds:.2f} s of processor time, limit {LIMIT}")
    sys.exit("the claim does not hold" if seconds > LIMIT else 0)


if __name__ == "__main__":
    main()
