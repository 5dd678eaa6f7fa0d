"""User configuration shared by all studies (``~/.config/scalewise``)."""

import os
from pathlib import Path
from typing import Any

import tomllib

from scalewise.errors import SpecError


def user_config_path(name: str) -> Path:
    """Return the path of a configuration file, under ``XDG_CONFIG_HOME`` if that is set."""
    config_home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config_home) / "scalewise" / name


def load_user_config(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; empty if the file does not exist."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot read {path}: {error}") from error
