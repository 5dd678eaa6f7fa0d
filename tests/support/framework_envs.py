"""The environments of engines, which ``make test-engines`` builds outside of the checkout."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from paths import RANK_PROGRAMS
from scalewise.launch import worker_zip
from start_ranks import free_port


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scalewise"


def _environment(engine: str) -> Path:
    return _cache() / "envs" / engine


def wheel(engine: str) -> Path | None:
    """Return the wheel of an engine that was built here, if one was."""
    return max((_cache() / "wheels").glob(f"{engine}-*.whl"), default=None)


def ready(engine: str) -> bool:
    """Say whether an engine's environment was made to its end."""
    return (_environment(engine) / ".ready").exists()


def python_of(engine: str) -> str:
    """Return the Python of an engine's environment."""
    python = _environment(engine) / "bin" / "python"
    assert python.exists(), f"{engine} has no environment yet: make test-engines builds it"
    return str(python)


def compare(starter: list[str], asked: dict[str, Any], folder: Path) -> list[Any]:
    """Hold an engine's ways to train against DDP, in its environment; return the rows."""
    file = folder / "asked.json"
    file.write_text(json.dumps(asked))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SCALEWISE_UNWATCHED": "1"}
    env["MASTER_PORT"] = free_port()
    env["PYTHONPATH"] = str(worker_zip.pack(folder))
    script = str(RANK_PROGRAMS / "compare_with_ddp.py")
    done = subprocess.run(
        [*starter, script, str(file)],
        env=env, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stdout + done.stderr
    rows: list[Any] = json.loads(file.read_text())["rows"]
    return rows
