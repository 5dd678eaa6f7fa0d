"""The environments of engines, which ``make test-engines`` builds outside of the checkout."""

import os
from pathlib import Path


def python_of(engine: str) -> str:
    """Return the Python of an engine's environment."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    python = cache / "scalewise" / "envs" / engine / "bin" / "python"
    assert python.exists(), f"{engine} has no environment yet: make test-engines builds it"
    return str(python)
