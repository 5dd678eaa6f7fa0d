"""Fixtures for all tests: one that fails whoever leaves a process behind."""

from collections.abc import Iterator

import psutil
import pytest


def _living(under: str) -> list[int]:
    """Return the processes of runs in a folder below ``under``."""
    found = []
    for process in psutil.process_iter():
        try:
            tag = process.environ().get("SCALEWISE_RUN", "")
            if tag.startswith(under) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture(autouse=True)
def no_process_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail a test that leaves a run's process alive."""
    yield
    assert not _living(str(tmp_path_factory.getbasetemp()))
