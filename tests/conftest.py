"""Fixtures for all tests: no process is left behind, a command as a shell gives it, a Slurm."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import user_python
from scalewise.cli import main
from slurm_cluster import Cluster, open_folder
from slurm_user import Desk


def _living(under: str) -> list[int]:
    """Return the processes of runs in a folder below ``under``."""
    tag = f"SCALEWISE_RUN={under}/".encode()
    found = []
    for pid in psutil.pids():
        try:  # After every test: psutil would take five times as long.
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            if tag in environ and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except (OSError, psutil.Error):
            continue
    return found


@pytest.fixture(autouse=True)
def wide_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every sentence of an answer on one line; tests of widths set their own."""
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture(autouse=True)
def no_process_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail a test that leaves a run's process alive."""
    yield
    assert not _living(str(tmp_path_factory.getbasetemp()))


@pytest.fixture
def scalewise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[object, str, str]]]:
    """Give a command as a shell would, in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    before = signal.getsignal(signal.SIGTERM)

    def give(*words: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["scalewise", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    yield give
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Bring up a Slurm of three nodes, its user with a Python of his own on the PATH."""
    python = user_python.ready()
    with open_folder() as folder, Cluster(folder) as made:
        made.env["PATH"] = f"{python.parent}:{made.env['PATH']}"
        yield made


@pytest.fixture
def desk(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Make a folder of the cluster's user; fail a test whose processes outlive their jobs."""
    yield cluster.place(f"{request.node.name.partition('[')[0]}-{time.monotonic_ns()}")
    assert not cluster.clear()


@pytest.fixture
def user(cluster: Cluster, desk: Path) -> Desk:
    """Return a user of the cluster at his desk."""
    return Desk(cluster, desk)


LONG = ("test_frameworks_study.py", "test_tensorflow.py")
"""Of the files that train with engines, those that take longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no test process is left alone with it at the end."""
    items.sort(
        key=lambda item: (item.get_closest_marker("torch") is None, item.path.name not in LONG)
    )
