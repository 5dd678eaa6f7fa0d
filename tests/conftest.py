"""Fixtures for all tests: a hook that fails whoever leaves a process behind."""

import os
from collections.abc import Iterator

import psutil
import pytest


def _of_a_run() -> set[int]:
    found = set()
    for process in psutil.process_iter():
        try:
            if "SCALEWISE_RUN" in process.environ() and process.pid != os.getpid():
                found.add(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture(autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fail a test that leaves a run's process alive."""
    before = _of_a_run()
    yield
    assert not _of_a_run() - before
