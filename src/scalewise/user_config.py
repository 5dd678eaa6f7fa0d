"""What a user keeps for all studies, in files of their own beside each other."""

import os
from pathlib import Path
from typing import Any

import tomllib

from scalewise.errors import SpecError


def user_config_path(name: str) -> Path:
    """Return where a user keeps a file of this name."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "scalewise" / name


def load_user_config(path: Path) -> dict[str, Any]:
    """Return what such a file holds; one that is not there holds nothing."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as bad:
        raise SpecError(f"cannot read {path}: {bad}") from bad
