"""Faults of the fake machine are found where they are, with what they cost, on 1,024 ranks."""

import json
import re
import statistics
from math import sqrt

import pytest

import scalewise
from builders import a_run, a_study
from commands import run_command, study_toml
from fake_study import play_attempt, play_study, play_to_the_end
from scalewise.errors import SpecError
from scalewise.frameworks.fake import Fake, Law
from scalewise.frameworks.fake_faults import Faults
from scalewise.record.attempts import attempts
from scalewise.record.read import read_run
from scalewise.report.text.explanation import rank_speed_sentence
from scalewise.spec import Topology

LARGE, MIDDLE = "128x8", "16x8"
LAW = {"compute": 1e-3, "host": 2e-3}
WORK = 10e-3
"""The seconds of a rank's own work in a step of 8 samples."""


def a_faulty_study(*faults, topologies=("1x1", MIDDLE), law=LAW, **changes):
    """Return a study of the fake machine with these faults; none: a healthy one."""
    options = {**law, "faults": list(faults)} if faults else law
    return a_study(**{"steps": 60, **changes}, options=options, topologies=topologies)


@pytest.fixture(scope="module")
def two_faults(tmp_path_factory):
    """Play a study in which rank 17 is slow from step 20 on, and losses fail from step 50 on."""
    straggler = {"kind": "straggler", "rank": 17, "factor": 1.3, "step": 20}
    nan_loss = {"kind": "nan loss", "step": 50}
    study = a_faulty_study(straggler, nan_loss, topologies=["1x1", LARGE])
    return play_study(study, tmp_path_factory.mktemp("faults"))


def test_a_straggler_and_its_cost_are_found_among_1024_ranks(two_faults):
    found = scalewise.explain(two_faults)
    heat = found.points[-1].heat
    assert heat.is_straggler and (heat.slowest.rank, heat.slowest.host) == (17, "node-2")
    assert heat.slowest.lag == pytest.approx(0.3, rel=0.01)
    began = 20 * Law.of(LAW).step(8, Topology.parse(LARGE))
    assert heat.slowest.since == pytest.approx(began, abs=0.02) and heat.slowest.until is None
    # It was slow in 40 of 60 steps.
    assert found.points[-1].seconds["balance"] == pytest.approx(0.3 * WORK * 40 / 60, rel=0.02)
    assert rank_speed_sentence(heat).startswith("Rank 17 on node-2 is 30 % slower")
    assert found.points[0].seconds["balance"] == 0


def test_a_loss_that_is_no_number_is_doubted_by_every_answer(two_faults, tmp_path):
    for answer in (scalewise.measure(two_faults), scalewise.summary(two_faults)):
        doubted = [doubt for doubt in answer.doubts if doubt.code == "loss-not-finite"]
        assert [doubt.devices for doubt in doubted] == [1, 1024]
    healthy = play_study(a_faulty_study(topologies=["1x1", "1x2"]), tmp_path)
    assert "loss-not-finite" not in [doubt.code for doubt in scalewise.measure(healthy).doubts]


def test_a_slow_disk_shows_in_input_and_in_checkpoints(tmp_path):
    disk = {"kind": "slow disk", "rank": 90, "input": 0.005, "checkpoint": 7.0}
    study = a_faulty_study(disk, law={**LAW, "checkpoint": 1.0}, checkpoint_every=40)
    found = scalewise.explain(play_study(study, tmp_path)).points[-1]
    assert (found.heat.slowest.rank, found.heat.is_straggler) == (90, True)
    assert found.heat.slowest.lag == pytest.approx(0.005 / WORK, rel=0.01)
    assert found.seconds["input"] == pytest.approx(0.005, rel=0.01)
    assert found.complete["checkpoint"] == pytest.approx(2 * (1.0 + 7.0))

    everywhere = a_faulty_study({"kind": "slow disk", "input": 0.005}, topologies=["1x1", "1x4"])
    found = scalewise.explain(play_study(everywhere, tmp_path / "all")).points
    assert [point.shares["input"] for point in found] == pytest.approx(
        [0.005 / point.step for point in found]
    )


def test_a_lost_rank_is_the_cause_and_a_requeue_goes_on_from_its_checkpoint(tmp_path):
    lost = {"kind": "lost rank", "rank": 9, "step": 30}
    (run,) = a_faulty_study(lost, topologies=[MIDDLE], checkpoint_every=20).runs()
    (cause,) = play_to_the_end(run, tmp_path, requeued=True)
    assert cause.startswith("rank 9 on node-1 (process ") and " after step 30" in cause
    assert "code 137: SIGKILL" in cause
    failed = json.loads((tmp_path / run.id / "failure-1.json").read_text())
    assert (failed["rank"], failed["host"]) == (9, "node-1")
    (first, second) = attempts(tmp_path / run.id)
    assert not first.succeeded and second.succeeded
    record = read_run(tmp_path / run.id, run)
    assert record.ranks[-1].notes.resumed == 20
    assert sum(span.steps or 0 for span in record.ranks[-1].spans) == 40
    # The earlier attempt is a part of the requeued job's time.
    step = Law.of(LAW).step(8, run.topology)
    began = min(span.start for span in record.ranks[0].spans)
    earlier = next(span for span in record.ranks[0].spans if span.name == "earlier")
    until_training = 4.0 + 0.5 * 8 + 2.0 + 3.0
    own_work = WORK + 30 * step
    assert earlier.start == began
    assert earlier.end - earlier.start == pytest.approx(until_training + own_work, abs=1e-3)


def a_study_file(folder, topology, faults, options=(), more="", **run):
    """Write ``s.toml``, a study with these faults."""
    pairs = [[f"{key} = {json.dumps(value)}" for key, value in fault.items()] for fault in faults]
    lines = [f"faults = [{', '.join('{' + ', '.join(fault) + '}' for fault in pairs)}]"]
    lines += [f"{key} = {value}" for key, value in dict(options).items()]
    text = study_toml([topology], **run) + "[run.options]\n" + "\n".join(lines) + "\n" + more
    (folder / "s.toml").write_text(text)


def test_a_hang_ends_with_the_patience_and_names_the_rank(tmp_path):
    faults = [{"kind": "hang", "rank": 1000, "step": 7}]
    a_study_file(tmp_path, LARGE, faults, more="[launcher]\npatience = 60\n")
    ended = run_command("run", "s.toml", cwd=tmp_path)
    assert ended.returncode == 3
    # The simulated hang took an hour, which is more than the launcher's patience.
    said = r"no progress for 36\d\d s: rank 1000 stopped in train, after 7 steps"
    assert re.search(said, ended.stderr)


def test_ranks_of_a_hanging_job_end_themselves_where_they_know_the_patience(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEWISE_PATIENCE", "20")
    run = a_run(topology="2x4", options={"faults": [{"kind": "hang", "rank": 5, "step": 7}]})
    cause = play_attempt(run, tmp_path)
    assert cause.startswith("rank 5 on node-1 (process ")
    assert "failed after step 7: no progress for 20 s" in cause
    assert play_attempt(run, tmp_path, 2) == ""


OFTEN = {
    "compute": 0.4, "host": 0.0, "ring": 0.0, "network": 0.0, "latency": 0.0, "rendezvous": 0.0,
    "launch": 1.0, "data": 0.5, "build": 0.5, "validate": 0.0, "shutdown": 0.0,
}  # fmt: skip
"""A law by which a step of one sample takes 0.4 s and a start 2 s."""
SAVE, JOB_MEAN = 0.4, 20.0


def expected(folder, study, world):
    """Return what ``advise`` expects of an uninterrupted study with this rate of interruptions."""
    *_, scale = scalewise.advise(
        play_study(study, folder), "time", at=[world], save=f"{SAVE}s", restart="2s",
        interrupted_every=f"{JOB_MEAN * world}s", full_run="500 samples",
    ).scales  # fmt: skip
    return scale


def test_advice_by_interruptions_is_what_interrupted_jobs_take(tmp_path):
    """Many jobs are interrupted at random; ``advise`` knows only how often."""
    length = {"batch": 1, "steps": 250}
    healthy = a_faulty_study(law=OFTEN, topologies=["1x1", "1x2"], **length)
    scale = expected(tmp_path / "healthy", healthy, 2)
    every = round(scale.interrupted.interval / 0.4)
    rate = {"kind": "interruptions", "every": JOB_MEAN * 2}
    law = {**OFTEN, "checkpoint": SAVE}
    study = a_faulty_study(
        rate, law=law, topologies=["1x2"], repeats=20, checkpoint_every=every, **length
    )
    counts = [len(play_to_the_end(run, tmp_path, requeued=True)) for run in study.runs()]
    times = [job_seconds(read_run(tmp_path / run.id, run)) for run in study.runs()]
    error = 3 * statistics.stdev(times) / sqrt(len(times))
    assert abs(statistics.mean(times) - scale.time.value) < error < 0.15 * scale.time.value
    # The number of interruptions in all jobs is Poisson distributed.
    total = len(counts) * scale.interrupted.count
    assert abs(sum(counts) - total) < 3 * sqrt(total)


def job_seconds(record):
    spans = record.ranks[0].spans
    return max(span.end for span in spans) - min(span.start for span in spans)


def test_1024_ranks_are_interrupted_at_the_rate_that_was_asked_for(tmp_path):
    rate = {"kind": "interruptions", "every": JOB_MEAN * 1024}
    (run,) = a_faulty_study(
        rate, law=OFTEN, topologies=[LARGE], batch=1, steps=50, checkpoint_every=5
    ).runs()
    faults = Faults([rate], 1024)
    causes = play_to_the_end(run, tmp_path, requeued=True)
    injected = [faults.interruption(run.id, number + 1) for number in range(len(causes))]
    assert len(causes) in range(1, 5)
    for cause, interruption in zip(causes, injected, strict=True):
        assert cause.startswith(f"rank {interruption.rank} on ")
    record = read_run(tmp_path / run.id, run)
    earlier = next(span for span in record.ranks[0].spans if span.name == "earlier")
    assert earlier.end - earlier.start == pytest.approx(
        sum(interruption.seconds for interruption in injected), abs=1e-3
    )


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ("hang", "faults must be a list of tables"),
        (["hang"], "a fault must be a table, got 'hang'"),
        ([{"rank": 3}], "a fault needs a kind"),
        ([{"kind": "stragler"}], "kind must be one of straggler, .*, got 'stragler'"),
        ([{"kind": "hang", "rank": 3}], "the fault 'hang' needs step"),
        ([{"kind": "hang", "rank": 3, "step": 1, "factor": 2}], "'hang' has no key 'factor'"),
        ([{"kind": "hang", "rank": -3, "step": 1}], "rank must be a whole number"),
        ([{"kind": "straggler", "rank": 3, "factor": 0.5}], "factor must be above 1"),
        ([{"kind": "straggler", "rank": 3, "factor": "x"}], "factor must be a number above 0"),
        ([{"kind": "slow disk", "rank": 3}], "needs input, checkpoint or both"),
        ([{"kind": "slow disk", "input": 1.0, "step": 5, "until": 5}], "until must be"),
        ([{"kind": "interruptions", "every": 0}], "every must be a number above 0"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(faults, says):
    with pytest.raises(SpecError, match=says) as refused:
        Fake().check(a_run(options={"faults": faults}))
    assert refused.value.hint


REAL = {"launch": 0.0, "rendezvous": 0.0, "data": 0.0, "build": 0.0, "shutdown": 0.0}


def test_ranks_that_are_processes_take_their_time_and_notice_a_lost_one(tmp_path):
    law = {**REAL, "compute": 5e-3, "validate": 0.0}
    faults = [{"kind": "lost rank", "rank": 1, "step": 12}]
    a_study_file(tmp_path, "1x2", faults, law, start="plain", batch=2)
    ended = run_command("run", "s.toml", cwd=tmp_path)
    assert ended.returncode == 3
    assert re.search(r"rank 1 on .* was killed by SIGKILL", ended.stderr)
    again = run_command("run", "s.toml", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    (point,) = scalewise.measure(tmp_path / "runs" / "a study").points
    assert 20 < point.throughput.value < 4 / 10e-3  # A step of 2 samples takes 12 ms at least.
