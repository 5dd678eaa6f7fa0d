"""Causes that were put into a script land on their own line, and on no other."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from scalewise import explain, measure, study
from scalewise.api import _SilentWatcher
from scalewise.errors import RunFailed
from watched_scripts import HERE

pytestmark = [pytest.mark.scripts, pytest.mark.alone, pytest.mark.timeout(300)]
SCRIPT = str(HERE / "causes.py")
CLEAN = (SCRIPT, "--per-sample", "0.003")


class Points:
    """What explain and measure say of a run on one and on two devices."""

    def __init__(self, folder: Path) -> None:
        found = explain(folder)
        (self.one, self.two) = found.points
        self.wrong = {guard.name for guard in found.correct}
        self.efficiency = measure(folder).points[1].efficiency.value
        built = folder.parent / "built.txt"
        self.built = float(built.read_text()) if built.exists() else None
        """Seconds that the script itself counted from its imports to its first batch."""


def start(program: tuple[str, ...], devices: str, folder: Path, env: dict[str, str]) -> None:
    """Run a program where it may leave its files; its study goes into ``folder / "study"``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in env.items():
            patch.setenv(name, value)
        try:
            study.run(study.from_program(program, devices), folder / "study", _SilentWatcher())
        except RunFailed as failed:
            logs = [path.read_text() for path in folder.glob("study/*/log.txt")]
            pytest.fail("\n".join([str(failed), *logs]))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs a program with a cause on two devices.

    Its run on one device, without any cause, is made once: what is finished is not run again.
    """

    @cache
    def alone(program: tuple[str, ...]) -> Path:
        folder = tmp_path_factory.mktemp("alone")
        start(program, "1", folder, {})
        return folder / "study"

    @cache
    def carry_out(program: tuple[str, ...] = CLEAN, *, attempt: int = 0, **env: str) -> Points:
        folder = tmp_path_factory.mktemp("causes")
        shutil.copytree(alone(program), folder / "study")
        start(program, "1,2", folder, env)
        return Points(folder / "study")

    return carry_out


def attempts(check: Callable[[int], None]) -> None:
    """Check what two runs show, up to three times: others may be at work on this machine."""
    for attempt in (0, 1):
        with suppress(AssertionError):
            return check(attempt)
    return check(2)


def added(point, clean) -> dict[str, float]:
    """Return what each line of a step has more than without the cause."""
    lines = [line for line in point.seconds if line != "unexplained"]
    return {line: point.seconds[line] - clean.seconds[line] for line in lines}


def lands(more: dict[str, float], line: str, seconds: float) -> None:
    """Require nine tenths of the injected time on its line, under one tenth on any other."""
    assert more[line] >= 0.9 * seconds, more
    others = {name: value for name, value in more.items() if name != line}
    assert max(others.values()) < 0.1 * seconds, more


def exact(points: Points) -> None:
    """Require the product of the factors to be the efficiency that measure finds by itself."""
    assert math.prod(points.two.factors.values()) == pytest.approx(points.efficiency, rel=1e-9)


@pytest.mark.parametrize(
    ("cause", "line", "seconds"),
    [
        ("--slow-rank 0.02", "balance", 0.02),
        pytest.param("--slow-rank 0.02 --where loop", "balance", 0.02, marks=pytest.mark.soak),
        ("--slow-loader 0.02", "input", 0.02),
        pytest.param("--uneven 6", "balance", 6 * 0.003, marks=pytest.mark.soak),
    ],
)
def test_a_cause_lands_on_its_own_line(cause, line, seconds, run):
    def check(attempt: int) -> None:
        clean, found = run(attempt=attempt), run(attempt=attempt, CAUSE=cause)
        lands(added(found.two, clean.two), line, seconds)
        exact(found)

    attempts(check)


def test_a_checkpoint_and_a_late_start_are_parts_of_the_life(run):
    def check(attempt: int) -> None:
        clean = run(attempt=attempt)
        found = run(attempt=attempt, CAUSE="--checkpoint 3 --start 5")
        before = clean.two.complete
        more = {part: spent - before.get(part, 0.0) for part, spent in found.two.complete.items()}
        assert more["checkpoint"] == pytest.approx(3, rel=0.1)
        # How long the rest of a start takes is another thing each time: the script has counted.
        built = found.built - found.two.complete["rendezvous"]
        assert found.two.complete["build"] == pytest.approx(built, abs=0.1 * 5)
        assert found.built > 5
        assert abs(more["train"]) < 0.8 and more.get("validate", 0.0) == 0
        assert max(added(found.two, clean.two).values()) < 0.1 * 3 / 80
        exact(found)

    attempts(check)


def test_a_learning_rate_that_stays_is_asked_about(run):
    assert "learning rate" in run(attempt=0).wrong


LINK = """
set -e
name=sw$$
trap 'ip netns del ${name}a 2>/dev/null; ip netns del ${name}b 2>/dev/null' EXIT
for side in a b; do ip netns add $name$side; ip -n $name$side link set lo up; done
ip link add v0 netns ${name}a type veth peer name v0 netns ${name}b
ip -n ${name}a addr add 10.99.0.1/24 dev v0; ip -n ${name}a link set v0 up
ip -n ${name}b addr add 10.99.0.2/24 dev v0; ip -n ${name}b link set v0 up
if [ -n "$RATE" ]; then
  for side in a b; do
    tc -n $name$side qdisc add dev v0 root tbf rate $RATE burst 64kb latency 50ms
  done
fi
export GLOO_SOCKET_IFNAME=v0 MASTER_ADDR=10.99.0.1 MASTER_PORT=29511 WORLD_SIZE=2
RANK=1 LOCAL_RANK=0 ip netns exec ${name}b "$@" &
RANK=0 LOCAL_RANK=0 ip netns exec ${name}a "$@"
wait
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("tc"), reason="needs root, ip and tc")
def test_a_slow_link_is_transfer(run, tmp_path):
    script = tmp_path / "link.sh"
    script.write_text(LINK)
    words = (sys.executable, SCRIPT, "--width", "1024", "--steps", "40", "--per-sample", "0.001")
    program = (shutil.which("bash"), "-c", ONE, "{world}", str(script), *words)

    def check(attempt: int) -> None:
        free = run(program, attempt=attempt)
        shaped = run(program, attempt=attempt, RATE="200mbit")
        more = added(shaped.two, free.two)
        injected = shaped.two.step - free.two.step
        assert injected > 0.01
        lands(more, "transfer", injected)
        exact(shaped)

    attempts(check)


ONE = f"""
if [ $0 = 1 ]; then
  shift; exec {sys.executable} -m torch.distributed.run --standalone --no-python "$@"
fi
exec bash "$@"
"""


def test_the_namespaces_are_gone():
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True)
    assert not [line for line in left.stdout.splitlines() if line.startswith("sw")]
