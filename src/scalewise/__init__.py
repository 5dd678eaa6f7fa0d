"""Scale a training job from one device to many, and find out whether it pays off."""

from importlib import import_module
from typing import Any

_API = (
    "run", "certify", "curve", "measure", "explain", "summary", "compare", "trend", "predict",
    "advise",
)  # fmt: skip
"""Functions of ``scalewise.api``, imported on first use: ``import scalewise`` stays light."""


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module 'scalewise' has no attribute {name!r}")
    return getattr(import_module("scalewise.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_API])
