"""Takes a training job from one device to many, and says whether it is worth it."""

from importlib import import_module
from typing import Any

_FACE = {
    "run": "scalewise.api",
    "curve": "scalewise.api",
    "measure": "scalewise.api",
    "explain": "scalewise.api",
    "predict": "scalewise.api",
    "advise": "scalewise.api",
}
"""Where each name of the Python face lives; imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module 'scalewise' has no attribute {name!r}")
    return getattr(import_module(_FACE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FACE])
