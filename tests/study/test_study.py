"""Running studies: start what is missing, skip what is finished, fail with a cause."""

import json
import os
import re
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from builders import a_run, a_study
from commands import COMMAND, install_framework, run_command
from recording_watcher import RecordingWatcher
from scalewise import api, results, study
from scalewise.errors import LaunchError, RecordError, RunFailed, SpecError
from scalewise.launch import Job
from scalewise.launch.local import LocalLauncher
from scalewise.record.study_files import finished
from scalewise.record.write import RankFile, write_json
from scalewise.report.text.doubts import mend_text, warning_text
from scalewise.spec import RunSpec, StudySpec
from scalewise.study import locks, notices

ALONE = "the program is not distributed: every process trains alone"


def test_asking_twice_runs_once(tmp_path):
    question = a_study(repeats=2)
    first, second = RecordingWatcher(), RecordingWatcher()
    study.run(question, tmp_path, first)
    study.run(question, tmp_path, second)
    assert first.opening == (6, 0) and len(first.runs) == 6
    assert second.opening == (0, 6) and second.runs == []


def test_a_wider_question_starts_only_what_is_new(tmp_path):
    study.run(a_study(topologies=["1x1", "1x2"]), tmp_path, RecordingWatcher())
    told = RecordingWatcher()
    study.run(a_study(topologies=["1x1", "1x2", "1x4"]), tmp_path, told)
    assert [str(run.topology) for run in told.runs] == ["1x4"]
    (curve,) = results.curves([tmp_path])
    assert [point.devices for point in curve.points] == [1, 2, 4]


def test_a_program_whose_ranks_exchange_nothing_is_told_of(tmp_path):
    (run,) = StudySpec.from_dict(
        {"name": "alone", "run": {"program": ["train.py"], "topology": "1x2"}}
    ).runs()
    write_json(tmp_path / run.id / "job.json", {"attempt": 1, "world": 2})
    for rank in (0, 1):
        seen = [{"step": 4, "sums": [1.0 + rank], "sizes": [1.0]}]
        facts = {"exchanged": False, "weights": {"shapes": "one", "seen": seen}}
        RankFile(tmp_path / run.id, rank, 1).line({"facts": facts})
    told = RecordingWatcher()
    notices.warn_separate_models([run], tmp_path, told)
    (problem,) = told.problems
    assert problem.endswith("no gradient was exchanged: every process trains alone")
    notices.warn_separate_models([a_run()], tmp_path, told)
    assert len(told.problems) == 1


def test_a_damaged_checkpoint_that_a_run_passed_over_is_told_of(tmp_path):
    run = a_run(framework="torch", workload="mlp", checkpoint_every=5)
    write_json(tmp_path / run.id / "job.json", {"attempt": 2, "world": 1})
    file = RankFile(tmp_path / run.id, 0, 2)
    file.line({"damaged": ["checkpoint step-000000010 is damaged (a): resumed from step-5"]})
    file.line({"ended": 1.0})
    told = RecordingWatcher()
    notices.warn_damaged_checkpoints([run, a_run()], tmp_path, told)
    (problem,) = told.problems
    assert problem.endswith("checkpoint step-000000010 is damaged (a): resumed from step-5")


@pytest.mark.parametrize(
    ("first", "hint"),
    [
        ("import torch", "`scalewise port train.py` shows what is missing; "),
        ("import lightning as L", "give its Trainer devices= and num_nodes="),
        ("from pytorch_lightning import Trainer", "-- train.py --devices {devices}"),
        (
            "    from accelerate import Accelerator",
            "start it by accelerate's command, with {devices}",
        ),
        ("import lightningfast  # not lightning", "`scalewise port train.py`"),
    ],
)
def test_a_program_that_trains_alone_is_told_what_would_help_it(first, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(f"{first}\n")
    run = {"topology": "1x2", "program": ["train.py", "--epochs", "3"]}
    assert hint in notices.scaling_hint(RunSpec.from_dict(run))
    assert notices.scaling_hint(RunSpec.from_dict({**run, "program": ["-m", "train"]})) == ""
    keras = notices.scaling_hint(RunSpec.from_dict({**run, "framework": "tensorflow"}))
    assert "in the scope of a tf.distribute.MirroredStrategy()" in keras


def test_runs_that_are_no_longer_asked_for_are_told_of(tmp_path):
    study.run(a_study(topologies=["1x1", "1x2"]), tmp_path, RecordingWatcher())
    told = RecordingWatcher()
    study.run(a_study(topologies=["1x1"]), tmp_path, told)
    (said,) = told.problems
    assert said.startswith(
        f"1 finished run in {tmp_path} belong to an earlier version of this study"
    )


def test_again_repeats_what_is_finished_and_the_new_attempt_counts(tmp_path):
    question = a_study(topologies=["1x1"])
    study.run(question, tmp_path, RecordingWatcher())
    study.run(question, tmp_path, RecordingWatcher(), again=True)
    (run,) = question.runs()
    assert json.loads((tmp_path / run.id / "outcome.json").read_text())["attempt"] == 2
    (curve,) = results.curves([tmp_path])
    assert curve.points[0].steps == 20


def test_a_run_that_cannot_work_is_refused_before_anything_starts(tmp_path):
    question = a_study(options={"computes": 1.0})
    with pytest.raises(SpecError, match="computes") as refused:
        study.run(question, tmp_path / "runs", RecordingWatcher())
    assert "compute" in refused.value.hint
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"framework": "torhc", "workload": "mlp"}, "torhc"),
        ({"framework": "torch", "workload": "mlpp"}, "mlpp"),
        ({"framework": "torch", "workload": None}, "needs a workload"),
        ({"framework": "torch", "workload": "mlp", "strategy": "dpd"}, "dpd"),
        ({"framework": "torch", "workload": "mlp", "data": "nowhere"}, "nowhere"),
        ({"framework": "torch", "workload": "mlp", "options": {"hiden": [2]}}, "hiden"),
        ({"framework": "torch", "workload": "mlp", "start": "direct"}, "direct"),
        (
            {"framework": "torch", "workload": "mlp", "parallelism": {"shard": 2},
             "topologies": ["1x2"]},
            "does not shard, but",
        ),
        ({"launcher": {"name": "slurmm"}}, "slurmm"),
        ({"launcher": {"patients": 3}}, "patients"),
        ({"launcher": {"patience": "long"}}, "long"),
    ],
)  # fmt: skip
def test_wrong_names_and_settings_are_refused_with_the_value(tmp_path, changes, says):
    with pytest.raises((SpecError, LookupError), match=says):
        study.run(a_study(**changes), tmp_path / "runs", RecordingWatcher())
    assert not (tmp_path / "runs").exists()


def test_braces_in_a_folders_name_are_no_placeholders(tmp_path):
    folder = tmp_path / "{port} {agent} {devices}"
    study.run(a_study(topologies=["1x1"]), folder, RecordingWatcher())
    assert all(finished(folder / run.id) for run in a_study(topologies=["1x1"]).runs())
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


@pytest.mark.parametrize("word", ["{agent}", "x{agent}y", "{host}", "{}", "{{}}", "a\u0001b"])
def test_a_programs_own_braces_reach_it(word, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    (run,) = StudySpec.from_dict(
        {"name": "x", "run": {"program": [str(script), word], "topology": "1x2"}}
    ).runs()
    (command,) = LocalLauncher().plan([run], tmp_path / "{port}").commands
    filled = command.with_port(4321)
    assert filled.argv[-1] == word
    assert filled.env["SCALEWISE_RUN"] == str(tmp_path / "{port}" / run.id)


def test_a_placeholder_of_the_user_is_filled_in_with_the_port(tmp_path):
    words = ["echo", "--at={master}:{port}", "{nodes}x{devices}", "{port"]
    (run,) = StudySpec.from_dict({"name": "x", "run": {"program": words, "topology": "1x2"}}).runs()
    (command,) = LocalLauncher().plan([run], tmp_path).commands
    assert "--at=localhost:{port}" in str(command)
    assert command.with_port(4321).argv == ("echo", "--at=localhost:4321", "1x2", "{port")


def test_planning_is_pure_and_quotes_every_path(tmp_path):
    folder = tmp_path / 'it\'s a "folder"'
    run = a_run(framework="torch", workload="mlp", topology="2x2", threads=3)
    plan = LocalLauncher().plan([run], folder)
    assert not folder.exists()
    assert len(plan.commands) == 2
    (script,) = plan.files.values()
    assert "OMP_NUM_THREADS=3" in script and "--nnodes=2" in script
    shown = subprocess.run(
        ["sh", "-c", f"set -- {plan.commands[0]}; for word; do echo \"$word\"; done"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert str(folder / run.id) in shown.stdout.splitlines()


@pytest.mark.parametrize(("topology", "agents"), [("1x1", 0), ("1x2", 1), ("2x1", 2)])
def test_a_single_rank_starts_without_an_agent(topology, agents, tmp_path):
    run = a_run(framework="torch", workload="mlp", topology=topology)
    commands = LocalLauncher().plan([run], tmp_path).commands
    assert sum("torch.distributed.run" in command.argv for command in commands) == agents
    assert all(("RANK" in command.env) == (agents == 0) for command in commands)


def test_a_rank_told_by_the_environment_is_not_believed(tmp_path, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.setenv(name, "nonsense")
    study.run(a_study(topologies=["1x2"]), tmp_path, RecordingWatcher())
    (curve,) = results.curves([tmp_path])
    assert curve.points[0].devices == 2


def test_a_second_scalewise_is_kept_out_of_the_folder(tmp_path):
    with locks.study_lock(tmp_path), pytest.raises(LaunchError, match="another scalewise"):
        study.run(a_study(), tmp_path, RecordingWatcher())


def test_output_under_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot write"):
        study.run(a_study(), tmp_path / "file" / "runs", RecordingWatcher())


def run_odd(tmp_path: Path, body: str, *, settings: str = "") -> subprocess.CompletedProcess[str]:
    """Run a study of the stranger's framework through the command line."""
    env = install_framework(tmp_path / "stranger", body)
    (tmp_path / "study.toml").write_text(
        'name = "odd"\n[run]\nframework = "odd"\nbatch = 8\nsteps = 20\n'
        f'[vary]\ntopology = ["1x1", "1x2"]\n{settings}'
    )
    return run_command("run", "study.toml", cwd=tmp_path, env=env)


def test_a_strangers_framework_needs_no_more_than_an_entry_point(tmp_path):
    done = run_odd(tmp_path, "pass")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "runs/odd"


def test_a_failing_rank_fails_the_run_with_its_own_words(tmp_path):
    done = run_odd(tmp_path, 'if spec.topology.world == 2: raise ValueError("lost my marbles")')
    assert done.returncode == 3
    assert "rank 0" in done.stderr and "ValueError: lost my marbles" in done.stderr
    assert "log.txt" in done.stderr and "Traceback" not in done.stderr
    (curve,) = results.curves([tmp_path / "runs" / "odd"])  # What was finished stays readable.
    assert [point.devices for point in curve.points] == [1]
    assert "1 of 2 runs are not finished" in map(warning_text, curve.warnings)


def test_a_process_that_ends_without_a_word_is_named(tmp_path):
    done = run_odd(tmp_path, "print('so long', flush=True); os._exit(7)")
    assert done.returncode == 3
    assert "no rank started" in done.stderr and "so long" in done.stderr


def test_a_hung_run_is_ended_after_its_patience(tmp_path):
    done = run_odd(tmp_path, "time.sleep(100)", settings="[launcher]\npatience = 2")
    assert done.returncode == 3
    assert "no rank has started for" in done.stderr and "patience" in done.stderr


def test_patience_begins_with_the_attempt_and_not_with_what_an_earlier_one_left(tmp_path):
    calm = tmp_path / "calm"
    body = f'if not os.path.exists({str(calm)!r}): raise ValueError("not today")'
    assert run_odd(tmp_path, body).returncode == 3
    left = list((tmp_path / "runs" / "odd").glob("*/rank-*.jsonl"))
    assert left
    for path in left:
        os.utime(path, (0, 0))
    calm.touch()
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "stranger")}
    done = run_command("run", "study.toml", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr


def test_a_missing_baseline_is_said(tmp_path):
    question = a_study(topologies=["1x1", "1x2", "1x4"])
    study.run(question, tmp_path, RecordingWatcher())
    (tmp_path / question.runs()[0].id / "outcome.json").unlink()
    (curve,) = results.curves([tmp_path])
    assert curve.baseline.devices == 2
    told = map(warning_text, curve.warnings)
    assert "the run on 1 is missing: compared with 2 devices" in told
    assert curve.points[1].efficiency.value == pytest.approx(
        curve.points[1].throughput.value / curve.points[0].throughput.value / 2
    )


def test_a_damaged_run_is_left_out_and_said(tmp_path):
    question = a_study(topologies=["1x1", "1x2", "1x4"])
    study.run(question, tmp_path, RecordingWatcher())
    broken = tmp_path / question.runs()[1].id
    (broken / "rank-00001.jsonl").write_text("{")
    (curve,) = results.curves([tmp_path])
    assert [point.devices for point in curve.points] == [1, 4]
    assert "rank-00001.jsonl" in warning_text(curve.doubts[0])
    assert "delete the run's folder" in mend_text(curve.doubts[0])
    shutil.rmtree(broken)
    told = RecordingWatcher()
    study.run(question, tmp_path, told)
    assert [str(run.topology) for run in told.runs] == ["1x2"]
    (curve,) = results.curves([tmp_path])
    assert [point.devices for point in curve.points] == [1, 2, 4]


@pytest.mark.parametrize("content", [b"{", b"[1, 2]", b"null", b"{}", b'{"schema": 1}', b"\xff\0"])
def test_a_run_whose_outcome_cannot_be_read_is_run_again(tmp_path, content):
    question = a_study(topologies=["1x1", "1x2"])
    study.run(question, tmp_path, RecordingWatcher())
    home = tmp_path / question.runs()[0].id
    (home / "outcome.json").write_bytes(content)
    (home / "spec.json").write_bytes(content)
    assert [each.phase for each in study.status(tmp_path)] == ["failed", "finished"]
    study.run(question, tmp_path, RecordingWatcher())
    (curve,) = results.curves([tmp_path])
    assert [point.devices for point in curve.points] == [1, 2]


def test_a_study_keeps_out_of_anothers_folder_and_of_a_newer_one(tmp_path):
    study.run(a_study(topologies=["1x1"]), tmp_path, RecordingWatcher())
    with pytest.raises(SpecError, match="holds the study 'a study', not 'another'"):
        study.run(a_study(name="another"), tmp_path, RecordingWatcher())
    path = tmp_path / "study.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99'))
    with pytest.raises(RecordError, match="schema 99"):
        study.run(a_study(topologies=["1x1"]), tmp_path, RecordingWatcher())
    assert '"schema": 99' in path.read_text()


def test_the_parts_of_repeats_sum_to_their_whole(tmp_path):
    options = {"drift": 0.3}
    study.run(
        a_study(topologies=["1x1"], repeats=3, options=options, epochs=2),
        tmp_path,
        RecordingWatcher(),
    )
    (curve,) = results.curves([tmp_path])
    point = curve.points[0]
    assert sum(part.value for part in point.complete.values()) == pytest.approx(point.time.value)
    assert point.overhead == pytest.approx(1 - point.complete["train"].value / point.time.value)


@pytest.mark.parametrize(
    ("number", "name"), [(9, r"SIGKILL \(often out of memory\)"), (35, "signal 35")]
)
def test_a_process_killed_from_outside_is_named_with_its_signal(tmp_path, number, name):
    done = run_odd(tmp_path, f"os.kill(os.getpid(), {number})")
    assert done.returncode == 3 and "Traceback" not in done.stderr
    signal_name, _, reason = name.partition(" ")
    said = rf"rank 0 \(process \d+\) was killed by {signal_name}"
    assert re.search(said, done.stderr) and re.search(reason, done.stderr)


def test_one_of_several_ranks_that_was_killed_without_an_agent_is_the_cause(tmp_path):
    dead = subprocess.Popen(["sh", "-c", "kill -KILL $$"])
    waits = subprocess.Popen(["sleep", "60"])
    try:
        assert dead.wait() == -9
        RankFile(tmp_path, 0, 1).line({"host": "here", "pid": waits.pid})
        launcher = LocalLauncher()
        launcher._children = {waits.pid: waits, dead.pid: dead}
        started = [{"pid": waits.pid, "created": 0.0}, {"pid": dead.pid, "created": 0.0}]
        state = launcher.poll(Job(tmp_path, 1, 2, {"processes": started}))
    finally:
        waits.kill()
        waits.wait()
    told = f"a process of the run ({dead.pid}) was killed by SIGKILL (often out of memory)"
    assert (state.phase, state.cause) == ("stuck", told)


def test_every_failed_run_fails_the_study_also_where_its_program_is_not_distributed(tmp_path):
    fields = {"name": "mine", "run": {"program": ["train.py"]}}
    mine = StudySpec.from_dict({**fields, "vary": {"topology": ["1x1", "1x2", "1x4"]}})
    one, two, four = mine.runs()
    write_json(tmp_path / one.id / "outcome.json", {"attempt": 1, "started": 1.0, "ended": 2.0})
    end = {"ended": 4.0, "guest": True, "world": 1, "taken": 6, "alone": True, "launched": 1.0}
    for run in (two, four):
        write_json(tmp_path / run.id / "job.json", {"attempt": 1, "world": 2, "launcher": "local"})
        RankFile(tmp_path / run.id, 0, 1).line(end)
    told = RecordingWatcher()
    with pytest.raises(RunFailed, match=r"1x4.* failed: the program is not distributed") as failed:
        notices.report_failures(dict.fromkeys((two, four), ALONE), tmp_path, told)
    assert "`scalewise port train.py` shows what is missing" in failed.value.hint
    (problem,) = told.problems
    assert "1x2" in problem and ALONE in problem


def test_a_program_killed_at_its_start_is_named_with_its_rank_and_signal(tmp_path):
    script = (
        "import os, time\nos.environ['RANK'] == '1' and os.kill(os.getpid(), 9)\ntime.sleep(60)"
    )
    (tmp_path / "train.py").write_text(script)
    done = run_command("run", "--on", "2", "--", "train.py", cwd=tmp_path)
    assert done.returncode == 3
    told = r"rank 1 \(process \d+\) was killed by SIGKILL .*\(often out of memory\)"
    assert re.search(told, done.stderr), done.stderr
    assert "does it train with PyTorch" not in done.stderr


def test_interrupting_keeps_what_is_finished_and_ends_the_rest(tmp_path):
    body = "if spec.topology.world == 2: open('started', 'w').close(); time.sleep(60)"
    env = install_framework(tmp_path / "stranger", body)
    (tmp_path / "study.toml").write_text(
        'name = "odd"\n[run]\nframework = "odd"\nbatch = 8\nsteps = 20\n'
        '[vary]\ntopology = ["1x1", "1x2"]\n'
    )
    lab = subprocess.Popen(
        [str(COMMAND), "run", "study.toml"], cwd=tmp_path, env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    _wait_for(tmp_path / "started")
    for _ in range(2):  # An impatient user.
        lab.send_signal(2)
    _, said = lab.communicate(timeout=60)
    assert lab.returncode == 130
    assert "interrupted" in said and "Traceback" not in said
    found = {each.run.topology.world: each.phase for each in study.status(tmp_path / "runs/odd")}
    assert found == {1: "finished", 2: "failed"}


def test_a_run_left_behind_by_a_killed_lab_is_taken_up_again(tmp_path):
    body = "open('started', 'w').close(); time.sleep(4)"
    env = install_framework(tmp_path / "stranger", body)
    text = (
        'name = "odd"\n[run]\nframework = "odd"\nbatch = 8\nsteps = 20\n[vary]\ntopology = ["1x1"]'
    )
    (tmp_path / "study.toml").write_text(text)
    argv = [str(COMMAND), "run", "study.toml"]
    lab = subprocess.Popen(argv, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
    _wait_for(tmp_path / "started")
    lab.kill()
    lab.wait()
    done = run_command("run", "study.toml", cwd=tmp_path, env=env)
    assert done.returncode == 0
    (home,) = [path.parent for path in (tmp_path / "runs/odd").glob("*/outcome.json")]
    assert json.loads((home / "outcome.json").read_text())["attempt"] == 1


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_full_disk_ends_the_run_with_a_sentence(tmp_path):
    (tmp_path / "study.toml").write_text(
        'name = "full"\n[run]\nframework = "fake"\nbatch = 8\nsteps = 3000\n'
        '[vary]\ntopology = ["1x1"]\n'
    )

    def fill_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))

    done = run_command("run", "study.toml", cwd=tmp_path, before=fill_disk)
    assert done.returncode == 3
    assert "cannot write" in done.stderr and "Traceback" not in done.stderr


def test_status_says_where_every_run_is_and_changes_nothing(tmp_path):
    question = a_study(topologies=["1x1", "1x2"])
    study.run(question, tmp_path, RecordingWatcher())
    (tmp_path / question.runs()[1].id / "outcome.json").unlink()
    before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
    phases = [each.phase for each in study.status(tmp_path)]
    assert phases == ["finished", "failed"]
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before


def test_the_python_face_runs_and_measures(tmp_path):
    folder = api.run(a_study(topologies=["1x1", "1x2"]), tmp_path / "runs")
    assert api.measure(folder).points[1].devices == 2
    curve = api.curve([(1, 240.0), (2, 464.0), (4, 892.0)], devices_per_node=4, scaling="weak")
    assert curve.points[2].nodes == 1
    by_time = api.curve(times=[(1, 556.0), (2, 439.0)], scaling="weak")
    assert by_time.points[1].efficiency.value == pytest.approx(556 / 439 / 2)


def test_one_of_several_curves_is_chosen_by_where(tmp_path):
    question = a_study(topologies=["1x1", "1x2"], vary={"options.compute": [0.001, 0.002]})
    folder = api.run(question, tmp_path / "runs")
    chosen = api.measure(folder, where={"options.compute": 0.002})
    assert chosen.where == {"options.compute": 0.002}
    with pytest.raises(SpecError, match="2 curves"):
        api.measure(folder)


def test_equal_studies_are_equal_whatever_wrote_them(tmp_path):
    (tmp_path / "study.toml").write_text(
        'name = "a study"\nscaling = "weak"\n[run]\nframework = "fake"\nbatch = 8\nsteps = 20\n'
        '[vary]\ntopology = ["1x1", "1x2", "1x4"]\n'
    )
    from_file = study.load(tmp_path / "study.toml")
    assert [run.id for run in from_file.runs()] == [run.id for run in a_study().runs()]
    assert isinstance(from_file, StudySpec)
    assert not finished(tmp_path / from_file.runs()[0].id)
