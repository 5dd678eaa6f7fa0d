"""Settings of other tools' packages, which they read from environment variables."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def package_settings(prefix: str, values: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables for a while, and unset all others that begin with ``prefix``:
    a user's server, project or run id is not meant for an export.
    """
    before = {
        name: os.environ.get(name)
        for name in {*values, *(name for name in os.environ if name.startswith(prefix))}
    }
    for name in before:
        os.environ.pop(name, None)
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
