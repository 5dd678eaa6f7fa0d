"""User configuration shared by all studies (``~/.config/scalewise``)."""

import os
from pathlib import Path
from typing import Any

import tomllib

from scalewise.errors import SpecError, cut
from scalewise.files import access_hint, read_file

CONFIG_LIMIT = 1 << 20
"""Bytes of the largest study or configuration that is read."""


def user_config_path(name: str) -> Path:
    """Return the path of a configuration file, under ``XDG_CONFIG_HOME`` if that is set."""
    config_home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config_home) / "scalewise" / name


def load_user_config(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; empty if the file does not exist."""
    try:
        return parse_toml(read_file(path, CONFIG_LIMIT))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}", hint=access_hint(error)) from error
    except ValueError as error:
        raise SpecError(
            f"cannot read {path}: {cut(str(error), 200)}", hint="write TOML, saved as UTF-8"
        ) from error


def parse_toml(data: bytes) -> dict[str, Any]:
    """Return the tables of a TOML file; raise ValueError if it is none."""
    try:
        return tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except RecursionError:
        raise tomllib.TOMLDecodeError("its tables are nested too deeply") from None
