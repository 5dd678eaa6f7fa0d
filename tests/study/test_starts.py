"""No run is started twice, and none that was started is lost."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from builders import a_study
from commands import COMMAND, install_framework, run_command
from fake_slurm import fake_slurm, wait_for_jobs
from recording_watcher import RecordingWatcher
from scalewise import study
from scalewise.errors import LaunchError, OutOfReach, RecordError, RunFailed, SpecError
from scalewise.launch import processes
from scalewise.launch.local import LocalLauncher
from scalewise.record.json_files import read_json
from scalewise.record.study_files import finished
from scalewise.record.write import RankFile, write_json
from scalewise.spec import StudySpec
from scalewise.study import locks, run_study, runner
from scalewise.study.runner import execute_runs

ODD = """name = "odd"
[run]
framework = "odd"
batch = 8
steps = 20
[vary]
topology = ["{topology}"]
"""
TRAINED = """name = "odd"
[run]
workload = "mlp"
options = {{hidden = [8]}}
data = "synthetic:64x8x8"
batch = 8
steps = {steps}
[vary]
topology = ["{topology}"]
"""
SLEEPING = """name = "odd"
[run]
program = ["sh", "-c", "echo $$ >> starts; exec sleep 600", "{{devices}}"]
[vary]
topology = ["{topology}"]
"""


def attempts(home: Path) -> list[int]:
    """Return the attempts at a run whose rank 0 began, in order, doubles included."""
    lines = (home / "rank-00000.jsonl").read_text().splitlines()
    return [line["attempt"] for line in map(json.loads, lines) if "schema" in line]


def living(folder: Path) -> list[psutil.Process]:
    """Return every living process of the runs in a study's folder."""
    runs = [{processes.RUN_VARIABLE: str(home)} for home in folder.iterdir() if home.is_dir()]
    return [process for run in runs for process in processes.ProcessFilter(run).processes()]


def test_a_run_that_ends_during_the_check_is_not_started_again(tmp_path, monkeypatch):
    question, check = a_study(), run_study.check

    def check_slowly(runs, engines):
        monkeypatch.setattr(run_study, "check", check)
        study.run(question, tmp_path, RecordingWatcher())
        return check(runs, engines)

    monkeypatch.setattr(run_study, "check", check_slowly)
    told = RecordingWatcher()
    study.run(question, tmp_path, told)
    assert told.opening == (0, 3) and told.runs == []
    assert [attempts(tmp_path / run.id) for run in question.runs()] == [[1]] * 3


def test_a_run_that_ends_just_before_its_start_is_not_started_again(tmp_path):
    question = a_study(topologies=["1x1", "1x2"])

    class Overtaken(RecordingWatcher):
        """Sees every run finished by somebody else at the moment it should start."""

        def started(self, number, run):
            super().started(number, run)
            execute_runs(LocalLauncher(), {run: 1}, tmp_path, RecordingWatcher(), detach=False)

    told = Overtaken()
    study.run(question, tmp_path, told)
    assert told.causes == ["", ""]
    assert [attempts(tmp_path / run.id) for run in question.runs()] == [[1], [1]]


def test_again_repeats_finished_runs_once(tmp_path):
    question = a_study(topologies=["1x1"])
    for _ in range(3):
        study.run(question, tmp_path, RecordingWatcher(), again=True)
    assert attempts(tmp_path / question.runs()[0].id) == [1, 2, 3]


def test_of_many_calls_at_once_without_locks_one_starts_each_run(tmp_path):
    """On a file system without locks, or on several machines, the start of each run is guarded."""
    env = install_framework(tmp_path / "stranger", "time.sleep(0.3)")
    (tmp_path / "study.toml").write_text(
        'name = "odd"\n[run]\nframework = "odd"\nbatch = 8\nsteps = 20\n'
        '[vary]\ntopology = ["1x1", "1x2", "1x4"]\n'
    )
    lockless = (
        "import fcntl, sys\n"
        "def flock(*args): raise OSError(38, 'Function not implemented')\n"
        "fcntl.flock = flock\n"
        "from scalewise.cli import main\n"
        "sys.argv = ['scalewise', 'run', 'study.toml']\nmain()"
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    argv = [sys.executable, "-c", lockless]
    labs = [subprocess.Popen(argv, cwd=tmp_path, env=env, text=True, **quiet) for _ in range(6)]
    said = [lab.communicate(timeout=120)[1] for lab in labs]
    assert {lab.returncode for lab in labs} <= {0, 1}, said
    assert not any("Traceback" in text for text in said)
    assert run_command("run", "study.toml", cwd=tmp_path, env=env).returncode == 0
    homes = [path.parent for path in (tmp_path / "runs" / "odd").glob("*/outcome.json")]
    assert [attempts(home) for home in homes] == [[1]] * 3


@pytest.mark.parametrize(
    ("owner", "age", "refused"),
    [
        ({"machine": processes.machine_id(), **processes.identity(os.getpid())}, 0, True),
        ({"machine": processes.machine_id(), "pid": 2**22 + 1, "created": 0.0}, 0, False),
        ({"machine": "elsewhere", "host": "login2", "pid": 1, "created": 0.0}, 0, True),
        ({"machine": "elsewhere", "host": "login2", "pid": 1, "created": 0.0}, 3600, False),
        ("not of scalewise", 0, False),
    ],
)
def test_a_start_is_left_to_whoever_is_at_it(owner, age, refused, tmp_path):
    question = a_study(topologies=["1x1"])
    home = tmp_path / question.runs()[0].id
    home.mkdir()
    path = home / locks.START_LINK
    path.symlink_to(json.dumps(owner))
    os.utime(path, (time.time() - age, time.time() - age), follow_symlinks=False)
    if refused:
        with pytest.raises(LaunchError, match="is starting the run") as problem:
            study.run(question, tmp_path, RecordingWatcher())
        assert problem.value.hint and path.is_symlink() and not (home / "job.json").exists()
    else:
        study.run(question, tmp_path, RecordingWatcher())
        assert finished(home) and not os.path.lexists(path)


@pytest.mark.parametrize("released", [False, True])
def test_of_runs_that_share_a_job_only_the_one_started_elsewhere_is_left_out(
    released, tmp_path, monkeypatch
):
    env = fake_slurm(tmp_path, dict(os.environ))
    monkeypatch.setenv("PATH", env["PATH"])
    monkeypatch.setattr(runner, "START_SECONDS", 30.0 if released else 0.2)
    question = a_study(topologies=["1x1", "1x2"], launcher={"name": "slurm", "jobs": "one"})
    folder = tmp_path / "runs"
    busy, free = (folder / run.id for run in question.runs())
    busy.mkdir(parents=True)
    link = busy / locks.START_LINK
    link.symlink_to(json.dumps({"machine": "elsewhere", "host": "login2"}))
    if released:
        threading.Timer(1.0, link.unlink).start()
        study.run(question, folder, RecordingWatcher())
    else:
        with pytest.raises(RunFailed, match=r"1x1, .*another scalewise on login2 is starting"):
            study.run(question, folder, RecordingWatcher())
    assert finished(free) and finished(busy) == released
    wait_for_jobs(folder)


def test_of_many_that_find_a_lock_left_behind_one_takes_it(tmp_path):
    """Each process takes the lock for a moment; no two have it at once."""
    dead = {"machine": processes.machine_id(), "pid": 2**22 + 1, "created": 0.0}
    take = (
        "import sys, time; from pathlib import Path; from scalewise.study import locks\n"
        "from scalewise.errors import LaunchError\n"
        "for number in range(40):\n"
        "    home = Path(sys.argv[1], str(number))\n"
        "    try:\n"
        "        with locks.start_lock(home):\n"
        "            (home / 'taken').mkdir(); time.sleep(0.002); (home / 'taken').rmdir()\n"
        "    except LaunchError: pass\n"
    )
    for number in range(40):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / locks.START_LINK).symlink_to(json.dumps(dead))
    argv = [sys.executable, "-c", take, str(tmp_path)]
    takers = [subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    said = [taker.communicate(timeout=60)[1] for taker in takers]
    assert not any(said), said  # mkdir would fail for the second of two.


def test_a_process_that_is_hidden_from_us_lives_while_its_id_is_in_use(monkeypatch):
    def hidden(pid):
        raise psutil.NoSuchProcess(pid)

    def forbidden(pid, number):
        raise PermissionError

    monkeypatch.setattr(psutil, "Process", hidden)
    assert not processes.alive(2**22 + 1, 0.0)
    monkeypatch.setattr(os, "kill", forbidden)  # It is there, and not ours.
    assert processes.alive(1, 0.0)


def killed_lab(tmp_path: Path, text: str, body: str = "pass", *, starts: int) -> Path:
    """Run a study whose lab is killed right after so many processes have started.

    With 0 it is killed before the first. Return the study's folder.
    """
    (tmp_path / "study.toml").write_text(text)
    env = install_framework(tmp_path / "stranger", body)
    original, left = processes.start, starts

    def start(*args):
        nonlocal left
        child = original(*args) if left else None
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return child

    def killed_at_start():
        processes.start = start

    lab = run_command("run", "study.toml", cwd=tmp_path, env=env, before=killed_at_start)
    assert lab.returncode == -signal.SIGKILL, lab.stderr
    return tmp_path / "runs" / "odd"


def run_again(tmp_path: Path) -> None:
    """Run the study once more, well."""
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "stranger")}
    done = run_command("run", "study.toml", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.torch
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TRAINED.format(topology="1x2", steps=50), marks=pytest.mark.soak),
        ODD.format(topology="1x1"),
    ],
)
def test_a_run_whose_lab_was_killed_as_it_started_is_joined(text, tmp_path):
    folder = killed_lab(tmp_path, text, "time.sleep(3)", starts=1)
    (status,) = study.status(folder)
    assert status.phase == "running"
    run_again(tmp_path)
    assert attempts(folder / status.run.id) == [1]
    assert not living(folder)


def test_a_run_whose_lab_was_killed_as_it_started_can_be_cancelled(tmp_path):
    folder = killed_lab(tmp_path, SLEEPING.format(topology="1x2"), starts=1)
    assert living(folder)
    assert len(study.cancel(folder)) == 1
    assert not living(folder)
    (status,) = study.status(folder)
    assert (status.phase, status.cause) == ("failed", "ended by the user")


def test_a_joined_run_goes_on_when_the_first_of_its_processes_has_ended(tmp_path, monkeypatch):
    folder = killed_lab(tmp_path, SLEEPING.format(topology="2x1"), starts=2)
    seen = []

    class Ending(RecordingWatcher):
        """Ends one process after the other, while the run is followed."""

        def progressed(self, run, status):
            left = sorted(living(folder), key=psutil.Process.create_time)
            seen.append(len(left))
            for process in left[:1]:
                process.kill()

    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunFailed):  # Its processes wrote nothing.
        study.run(study.load(Path("study.toml")), folder, Ending())
    assert {1, 2} <= set(seen)
    assert json.loads(job_text(folder))["attempt"] == 1
    assert not living(folder)


def test_what_a_killed_lab_started_in_part_is_ended_and_started_anew(tmp_path):
    folder = killed_lab(tmp_path, SLEEPING.format(topology="2x1"), starts=1)
    (half,) = living(folder)
    lab = subprocess.Popen([COMMAND, "run", "study.toml"], cwd=tmp_path, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while len((tmp_path / "starts").read_text().split()) < 3:
        assert time.monotonic() < deadline and lab.poll() is None
        time.sleep(0.1)
    assert not half.is_running()
    assert [process.name() for process in living(folder)].count("sleep") == 2
    lab.send_signal(signal.SIGINT)
    lab.communicate(timeout=60)
    assert lab.returncode == 130 and not living(folder)


@pytest.fixture
def sleeping(tmp_path):
    """Start a study whose one process sleeps, and kill its lab; return the study's folder."""
    (tmp_path / "study.toml").write_text(SLEEPING.format(topology="1x1"))
    lab = subprocess.Popen([COMMAND, "run", "study.toml"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    folder = tmp_path / "runs" / "odd"
    deadline = time.monotonic() + 60
    while not (tmp_path / "starts").exists() or not json.loads(job_text(folder))["processes"]:
        assert time.monotonic() < deadline and lab.poll() is None
        time.sleep(0.05)
    lab.kill()
    lab.wait()
    yield folder
    study.cancel(folder if folder.exists() else tmp_path / "moved")


def job_text(folder: Path) -> str:
    """Return the job file of a study's one run; an empty one while there is none."""
    texts = [path.read_text() for path in folder.glob("*/job.json")]
    return texts[0] if texts else '{"processes": []}'


@pytest.mark.parametrize("spelling", ["dots", "link", "moved"])
def test_a_run_is_found_by_another_name_of_its_folder(spelling, sleeping, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    folder = {"dots": Path("sub/../runs/odd"), "link": Path("link"), "moved": Path("moved")}
    (tmp_path / "link").symlink_to(sleeping)
    (process,) = (one for one in living(sleeping) if one.name() == "sleep")
    if spelling == "moved":
        sleeping.rename("moved")
    (status,) = study.status(folder[spelling])
    assert status.phase == "running"
    assert len(study.cancel(folder[spelling])) == 1
    assert not process.is_running()


def test_a_run_that_is_being_started_is_not_cancelled_in_vain(sleeping, monkeypatch):
    monkeypatch.setattr(sys.modules["scalewise.study.status"], "START_SECONDS", 0.2)
    (home,) = (path.parent for path in sleeping.glob("*/job.json"))
    with locks.start_lock(home), pytest.raises(LaunchError, match="is starting the run"):
        study.cancel(sleeping)
    assert living(sleeping)
    assert len(study.cancel(sleeping)) == 1 and not living(sleeping)


def test_what_has_no_job_file_is_ended_before_a_new_start(sleeping, tmp_path):
    (old,) = (one for one in living(sleeping) if one.name() == "sleep")
    for path in sleeping.glob("*/job.json"):
        path.unlink()
    lab = subprocess.Popen([COMMAND, "run", "study.toml"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len((tmp_path / "starts").read_text().split()) < 2:
        assert time.monotonic() < deadline and lab.poll() is None
        time.sleep(0.1)
    assert not old.is_running()
    lab.send_signal(signal.SIGINT)
    assert lab.wait(timeout=60) == 130


@pytest.mark.parametrize("text", ['{"schema": 1}', '{"schema": 1, "attempt": "x", "world": 1}'])
def test_a_damaged_job_file_is_told(text, tmp_path):
    question = a_study(topologies=["1x1"])
    study.run(question, tmp_path, RecordingWatcher())
    (path,) = tmp_path.glob("*/job.json")
    path.write_text(text)
    for act in (study.status, study.cancel):
        with pytest.raises(RecordError, match=r"job\.json is damaged") as problem:
            act(tmp_path)
        assert "delete that file" in problem.value.hint


def test_a_program_that_clears_its_environment_is_ended(tmp_path):
    words = '["env", "-i", "PATH=/usr/bin:/bin", "sleep", "600", "{devices}"]'
    text = f'name = "odd"\n[run]\nprogram = {words}\n[vary]\ntopology = ["1x1"]\n'
    (tmp_path / "study.toml").write_text(text.replace(', "{devices}"', ""))
    lab = subprocess.Popen([COMMAND, "run", "study.toml"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (known := json.loads(job_text(tmp_path / "runs" / "odd"))["processes"]):
        assert time.monotonic() < deadline and lab.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)
    lab.send_signal(signal.SIGINT)
    assert lab.wait(timeout=60) == 130
    assert not psutil.pid_exists(known[0]["pid"])


def test_a_run_whose_folder_is_deleted_is_ended(tmp_path):
    (tmp_path / "study.toml").write_text(
        'name = "odd"\n[run]\nprogram = ["sleep", "600"]\nstart = "node"\n'
        '[vary]\ntopology = ["1x1"]\n'
    )
    lab = subprocess.Popen(
        [COMMAND, "run", "study.toml"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (known := json.loads(job_text(tmp_path / "runs" / "odd"))["processes"]):
        assert time.monotonic() < deadline and lab.poll() is None
        time.sleep(0.05)
    shutil.rmtree(tmp_path / "runs")
    _, said = lab.communicate(timeout=60)
    assert lab.returncode == 3 and "is gone" in said and "Traceback" not in said
    assert not psutil.pid_exists(known[0]["pid"])


def test_a_repetition_that_was_left_under_way_is_joined(tmp_path):
    question = a_study(topologies=["1x1"])
    study.run(question, tmp_path, RecordingWatcher())
    (home,) = (path.parent for path in tmp_path.glob("*/job.json"))
    job = read_json(home / "job.json")
    write_json(home / "job.json", {**job, "attempt": 2})  # Its processes are gone.
    told = RecordingWatcher()
    study.run(question, tmp_path, told)
    assert told.opening == (1, 0) and attempts(home) == [1, 3]


def test_a_requeued_run_that_finished_is_not_started_again_without_its_rank_files(tmp_path):
    question = a_study(topologies=["1x1"])
    study.run(question, tmp_path, RecordingWatcher())
    (home,) = (path.parent for path in tmp_path.glob("*/outcome.json"))
    write_json(home / "outcome.json", {**read_json(home / "outcome.json"), "attempt": 2})
    (home / "rank-00000.jsonl").unlink()
    told = RecordingWatcher()
    study.run(question, tmp_path, told)
    assert told.opening == (0, 1)


def test_a_folder_that_cannot_be_on_pythons_path_is_refused(tmp_path):
    run = {"program": ["/bin/true", "{devices}"], "topology": "1x1"}
    question = StudySpec.from_dict({"name": "colon", "scaling": None, "run": run})
    with pytest.raises(SpecError, match="cannot be on Python's path"):
        study.run(question, tmp_path / "a:b", RecordingWatcher())


def test_a_lab_killed_before_anything_started_leaves_nothing_behind(tmp_path):
    folder = killed_lab(tmp_path, ODD.format(topology="1x1"), starts=0)
    assert not living(folder) and study.cancel(folder) == []
    run_again(tmp_path)
    (status,) = study.status(folder)
    assert status.phase == "finished"


def test_a_command_that_cannot_start_leaves_no_job(tmp_path):
    run = {"program": ["/bin/true", "{devices}"], "topology": "1x1"}
    question = StudySpec.from_dict({"name": "gone", "scaling": None, "run": run})
    broken = study.plan(question, tmp_path)[0]
    object.__setattr__(broken.commands[0], "argv", (str(tmp_path / "gone"),))
    with pytest.raises(LaunchError, match="cannot start"):
        LocalLauncher().submit(broken)
    assert not list(tmp_path.glob("*/job.json"))


@pytest.fixture
def run_elsewhere(tmp_path):
    """Write the folder of a run that goes on on another machine which shares the folder."""
    question = a_study(topologies=["1x1"])
    home = tmp_path / question.runs()[0].id
    write_json(tmp_path / "study.json", question.to_dict())
    job = {"launcher": "local", "host": "login2", "machine": "another", "uid": os.getuid()}
    known = {"starter": {"pid": 1, "created": 0.0}, "commands": 1, "log": 0}
    # The process id means nothing here, though a process of ours has it.
    job |= known | {"processes": [processes.identity(os.getpid())]}
    write_json(home / "job.json", {"attempt": 1, "world": 1, **job})
    RankFile(home, 0, 1).line({"schema": 1, "rank": 0, "launched": time.time()})
    return question, home


def test_a_run_on_another_machine_is_followed_and_not_started_again(run_elsewhere, tmp_path):
    question, home = run_elsewhere
    (status,) = study.status(tmp_path)
    assert (status.phase, status.cause) == ("running", "on login2")
    with pytest.raises(OutOfReach, match=r"on login2 in .* cannot be ended from here"):
        study.cancel(tmp_path)

    class Ending(RecordingWatcher):
        """Has the run end on its machine while it is followed from here."""

        def progressed(self, run, status):
            now = time.time()
            end = {"ended": now, "launched": now - 1, "simulated": False}
            RankFile(home, 0, 1).line(end)

    told = Ending()
    study.run(question, tmp_path, told)
    assert told.causes == [""] and attempts(home) == [1] and finished(home)


def test_a_run_of_another_user_is_followed_by_what_it_writes(run_elsewhere, tmp_path, monkeypatch):
    _, home = run_elsewhere
    job = read_json(home / "job.json")
    job |= {"machine": processes.machine_id(), "uid": 1234, "host": "vm"}
    job["processes"] = [{"pid": 2**22 + 1, "created": 0.0}]  # As if it was hidden from us.
    write_json(home / "job.json", job)
    monkeypatch.setattr(os, "getuid", lambda: 1235)
    (status,) = study.status(tmp_path)
    assert (status.phase, status.cause) == ("running", "on vm")


def test_a_run_of_another_machine_that_fell_silent_is_run_again(run_elsewhere, tmp_path):
    question, home = run_elsewhere
    long_ago = time.time() - 3600
    for name in ("job.json", "rank-00000.jsonl"):
        os.utime(home / name, (long_ago, long_ago))
    study.run(question, tmp_path, RecordingWatcher())
    assert attempts(home) == [1, 2] and finished(home)


def test_the_lock_of_a_study_is_tried_and_not_waited_for(tmp_path):
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LaunchError, match="another scalewise is running this study"):
            study.run(a_study(), tmp_path, RecordingWatcher())


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(50))
def test_a_lab_killed_at_any_moment_of_a_start_loses_nothing(number, tmp_path):
    """The lab is killed as soon as its child is seen, or a moment before or after."""
    random.seed(number)
    trained = TRAINED.format(topology="1x2", steps=20)
    (tmp_path / "study.toml").write_text(trained if number % 5 == 4 else ODD.format(topology="1x1"))
    env = install_framework(tmp_path / "stranger", "time.sleep(1)")
    folder = tmp_path / "runs" / "odd"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    lab = subprocess.Popen([COMMAND, "run", "study.toml"], cwd=tmp_path, env=env, **quiet)
    while lab.poll() is None and not list(folder.glob("*/.starting")):
        time.sleep(0.001)
    while lab.poll() is None and not (number % 2 or living(folder)):
        pass
    time.sleep(random.choice([0.0, 0.0, random.uniform(0.0, 0.2)]))
    lab.kill()
    lab.wait()
    started = bool(living(folder))
    (status,) = study.status(folder)
    assert status.phase == "running" or not started
    if number % 3 == 2:
        study.cancel(folder)
        assert not living(folder)
    run_again(tmp_path)
    home = folder / status.run.id
    numbers = attempts(home)
    assert len(numbers) == len(set(numbers)) and finished(home) and not living(folder)
    assert numbers == [1] or not started or number % 3 == 2
