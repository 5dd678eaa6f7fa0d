"""What a user of the tests' Slurm has: a folder with a study in it."""

import json
import time
from subprocess import PIPE

from scalewise.record.rank_tail import read_tail
from scalewise.record.read import read_run
from scalewise.spec import StudySpec

STUDY = """\
name = "cluster"
[run]
batch = 16
{of}
{run}
[vary]
{vary}
[launcher]
name = "slurm"
time = "00:10:00"
{launcher}
"""
TRAINED = """workload = "mlp"
options = {hidden = [32]}
data = "synthetic:512x8x8"
"""
FAKE = 'framework = "fake"'
SLEEPS = 'lines = ["sleep 60"]'


class Desk:
    """A folder of the cluster's user, with a study in it."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.home = folder / "runs" / "cluster"

    def write(self, run="steps = 20", vary='topology = ["2x2"]', launcher="", of=TRAINED):
        text = STUDY.format(of=of, run=run, vary=vary, launcher=launcher)
        (self.folder / "study.toml").write_text(text)
        return StudySpec.from_dict(json.loads(self.ask("-c", TO_JSON)))

    def ask(self, *words):
        done = self.cluster.run("python", *words, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def scalewise(self, *words, timeout=240.0):
        return self.cluster.run("scalewise", *words, cwd=self.folder, timeout=timeout)

    def started(self, *words, **how):
        """Start a command and go on."""
        pipes = {"stdout": PIPE, "stderr": PIPE, "text": True}
        return self.cluster.start("scalewise", *words, cwd=self.folder, **pipes, **how)

    def queue(self):
        """Return the jobs that are waiting or running."""
        asked = ("squeue", "--noheader", "--states=PENDING,RUNNING", "--format=%i")
        return self.cluster.root(*asked).stdout.split()

    def until(self, ready, seconds=30.0):
        """Wait until it is so."""
        until = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < until
            time.sleep(0.2)

    def measured(self):
        done = self.scalewise("measure", "runs/cluster")
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def runs(self, study):
        return [read_run(self.home / run.id, run) for run in study.runs()]

    def wait_for(self, study, steps, *, attempt=1, seconds=90.0):
        """Wait until the first run has taken so many steps in an attempt; return its job."""
        (run, *_) = study.runs()
        home = self.home / run.id
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            taken = read_tail(home, 0, attempt).notes.steps
            if taken and taken[1] >= steps:
                return str(json.loads((home / "job.json").read_text())["job"])
            time.sleep(0.2)
        raise AssertionError(f"no {steps} steps after {seconds} s")


TO_JSON = """
import json, pathlib, tomllib
print(json.dumps(tomllib.loads(pathlib.Path("study.toml").read_text())))
"""


def losses(record):
    return [line["losses"] for line in record.ranks[0].lines if "losses" in line]
