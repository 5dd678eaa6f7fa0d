"""The run folder: append-only, readable after a crash, versioned."""

import errno
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from builders import a_run
from fake_study import play
from scalewise.errors import RecordError
from scalewise.record.close import close, rivals_folder
from scalewise.record.json_files import read_json
from scalewise.record.log import cancel_reason, first_traceback, own_lines, read_process_ends
from scalewise.record.rank_tail import read_last_line, read_tail
from scalewise.record.read import read_rank, read_run
from scalewise.record.sketches import layer_copies, sketched_steps
from scalewise.record.write import RankFile, rank_file, write_json
from scalewise.spec import RunSpec, Topology
from unsealed import unseal


def test_the_version_is_in_the_first_line(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1})
    assert (tmp_path / "a.json").read_text().splitlines()[0] == '{"schema": 1,'
    assert read_json(tmp_path / "a.json") == {"b": 1}
    record = play(a_run(), tmp_path)
    first = rank_file(record.folder, 0).read_text().splitlines()[0]
    assert json.loads(first)["schema"] == 1


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"b": object()})
    assert read_json(tmp_path / "a.json") == {"b": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_changed_json_file_is_refused_and_one_without_a_checksum_is_read(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"b": 1, "c": (1.5, None), "d": {"2": float("nan")}})
    assert read_json(path)["c"] == [1.5, None]
    text = path.read_text()
    path.write_text(text.replace('"b": 1', '"b": 2'))
    with pytest.raises(RecordError, match=r"a\.json was changed after it was written"):
        read_json(path)
    values = {key: value for key, value in json.loads(text).items() if key != "checksum"}
    path.write_text(json.dumps(values | {"b": 2}))  # As earlier versions wrote it.
    assert read_json(path)["b"] == 2


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"schema": true}', '{"schema": 0}', "1" * 5000]
)
def test_a_damaged_json_file_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(RecordError, match=r"a\.json is damaged"):
        read_json(tmp_path / "a.json")


def test_a_newer_outcome_is_refused(tmp_path):
    path = play(a_run(), tmp_path).folder / "outcome.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(RecordError, match="schema 2"):
        read_run(path.parent, a_run())


def test_a_newer_rank_file_is_refused(tmp_path):
    home = play(a_run(), tmp_path).folder
    path = rank_file(home, 0)
    path.write_text(path.read_text().replace('"schema":1', '"schema":2'))
    with pytest.raises(RecordError, match="schema 2"):
        read_run(home, a_run())


def test_what_a_reader_does_not_know_it_ignores(tmp_path):
    home = play(a_run(), tmp_path).folder
    path = rank_file(unseal(home), 0)
    lines = path.read_text().splitlines()
    lines.insert(3, '{"attempt":1,"weather":"rain"}')
    path.write_text("\n".join(lines) + "\n")
    assert len(read_run(home, a_run()).ranks[0].steps.seconds) == 20


def test_sketches_of_shards_add_up_and_those_of_replicas_stay_apart(tmp_path):
    def sketch(number, shard=None):
        part = {"part": "shard", "shard": shard} if shard else {"part": "whole"}
        return {"sums": [number, -number], "squares": number**2, **part}

    spec = a_run(topology="1x4", certify=True)
    record = play(spec, tmp_path)
    for rank in range(4):
        file = RankFile(record.folder, rank, 1)
        layers = {"whole": sketch(rank), "sharded": sketch(rank, [rank % 2, 2])}
        if rank == 0:
            layers["torn"] = sketch(1, [0, 2])
        file.line({"sketch": {"step": 8, "kind": "gradient", "layers": layers}})
        file.line({"sketch_samples": {"step": 8, "count": 1, "fingerprints": [f"{rank:016x}"]}})
        file.line({"certificate": {"seed": 0, "layers": 2, "precision": "float32"}})
        file.close()
    ranks = read_run(record.folder, spec).ranks
    assert sketched_steps(ranks, "gradient") == [8]
    assert sketched_steps(ranks, "weight") == []
    copies = layer_copies(ranks, 8, "gradient")
    assert [copy.ranks for copy in copies["whole"]] == [(0,), (1,), (2,), (3,)]
    sharded = [(copy.ranks, copy.sketch.sums, copy.sketch.squares) for copy in copies["sharded"]]
    assert sharded == [((0, 1), (1, -1), 1), ((2, 3), (5, -5), 13)]
    assert "torn" not in copies
    assert ranks[3].sketch_samples[0].fingerprints == ["0000000000000003"]
    assert ranks[3].notes.certificate.layers == 2


def test_a_torn_line_costs_only_itself(tmp_path):
    file = RankFile(tmp_path, 0, 1)
    file.line({"a": 1})
    os.write(file._file, b'{"attempt":1,"b":')
    file.close()
    later = RankFile(tmp_path, 0, 2)
    later.line({"c": 3})
    assert read_tail(tmp_path, 0, 1).lines == ()
    assert read_tail(tmp_path, 0, 2).last == {"attempt": 2, "c": 3}
    assert read_last_line(tmp_path, 0, 2) == {"attempt": 2, "c": 3}
    assert read_last_line(tmp_path, 0, 1) == read_last_line(tmp_path, 1, 1) == {}
    first = json.loads(rank_file(tmp_path, 0).read_text().splitlines()[0])
    assert first == {"attempt": 1, "run": tmp_path.name, "a": 1, "sum": first["sum"]}


def test_a_truncated_rank_file_is_named(tmp_path):
    home = play(a_run(), tmp_path).folder
    path = rank_file(home, 0)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RecordError, match=r"rank-00000\.jsonl is cut off"):
        read_run(home, a_run())


def test_a_damaged_line_of_steps_is_not_passed_over(tmp_path):
    home = play(a_run(steps=300), tmp_path).folder
    lines = rank_file(unseal(home), 0).read_text().splitlines()
    place = next(k for k, line in enumerate(lines) if '"steps":[100,200]' in line)
    rank_file(home, 0).write_text("\n".join([*lines[:place], "x", *lines[place + 1 :], ""]))
    with pytest.raises(
        RecordError, match=r"line 11: its steps begin with 200: step 100 is missing"
    ):
        read_run(home, a_run(steps=300))


def test_only_the_attempt_that_ended_well_is_read(tmp_path, monkeypatch):
    home = play(a_run(), tmp_path).folder
    monkeypatch.setenv("SCALEWISE_ATTEMPT", "2")
    play_again = a_run()
    from scalewise.frameworks.__main__ import do_train

    assert do_train(str(home)) == 0
    assert read_run(home, a_run()).ranks[0].lines[0]["attempt"] == 1
    assert not close(home, attempt=2, world=play_again.topology.world, ended=time.time())
    record = read_run(home, a_run())
    assert {line["attempt"] for line in record.ranks[0].lines} == {2}
    assert len(record.ranks[0].steps.seconds) == 20


def test_steps_beyond_a_thousand_are_sampled_and_their_totals_kept(tmp_path):
    record = play(a_run(steps=3000, topology="1x2"), tmp_path)
    one, two = (rank.steps for rank in record.ranks)
    assert list(one.index[:1000]) == list(range(1000))
    assert list(one.index[1000:]) == list(range(1000, 3000, 10))
    assert (one.index == two.index).all()
    totals = [line for line in record.ranks[0].lines if "of" in line]
    assert sum(line["samples"] for line in totals) == 3000 * 8
    assert [line["steps"][1] for line in totals] == list(range(100, 3001, 100))


def test_phases_add_up_to_their_step(tmp_path):
    steps = play(a_run(), tmp_path).ranks[0].steps
    assert sum(steps.phases.values()) == pytest.approx(steps.seconds, abs=1e-6)


def test_closing_names_the_rank_that_died_without_a_word(tmp_path):
    for rank in (0, 1):
        RankFile(tmp_path, rank, 1).line({"host": "here", "pid": 100 + rank, "steps": [0, 7]})
    RankFile(tmp_path, 0, 1).line({"failed": "connection lost", "kind": "error", "at": 5.0})
    cause = close(tmp_path, attempt=1, world=2, ended=9.0, killed={101: "SIGKILL"})
    assert cause == (
        "rank 1 on here (process 101) was killed by SIGKILL after step 7 (often out of memory)"
    )
    assert read_json(tmp_path / "failure-1.json")["rank"] == 1
    assert not (tmp_path / "outcome.json").exists()


def test_the_first_of_two_deaths_is_the_cause(tmp_path):
    for rank in (0, 1):
        RankFile(tmp_path, rank, 1).line({"host": "here", "pid": 100 + rank, "steps": [0, 7]})
    killed = {101: "SIGKILL", 100: "SIGABRT"}
    cause = close(tmp_path, attempt=1, world=2, ended=9.0, killed=killed)
    assert cause.startswith("rank 1 on here (process 101) was killed by SIGKILL after step 7")


TORCHRUN = """\
W1117 17:13:34.231000 4670 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process \
4675 closing signal SIGTERM
E1117 17:13:34.233000 4670 torch/distributed/elastic/multiprocessing/api.py:1002] failed \
(exitcode: -{number}) local_rank: 1 (pid: 4676) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
train.py FAILED
------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-17_17:13:34
  host      : localhost
  rank      : 2 (local_rank: 0)
  exitcode  : -15 (pid: 4675)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 4675
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-17_17:13:34
  host      : localhost
  rank      : 3 (local_rank: 1)
  exitcode  : -{number} (pid: 4676)  ({name})
  error_file: <N/A>
  traceback : Signal {number} ({name}) received by PID 4676
======================================================
"""
"""What torchrun's agent of the second node writes when a signal ends its second rank."""
BEGUN = {"host": "here", "pid": 4675, "rank": 2}
FAILURES = {
    "no rank has begun": (),
    "another rank waits": (BEGUN,),
    "another rank was told to end": (
        BEGUN,
        {"failed": "ended by SIGTERM", "kind": "terminated", "at": 5.0},
    ),
    "a program's rank was told to end": ({**BEGUN, "guest": True},),
    "another rank failed of it": (
        {**BEGUN, "guest": True},
        {"failed": "RuntimeError: connection closed", "kind": "error", "at": 5.0},
    ),
}


@pytest.mark.parametrize("others", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize(
    ("number", "name", "words"),
    [
        (9, "SIGKILL", "SIGKILL before it recorded anything (often out of memory)"),
        (7, "SIGBUS", "SIGBUS before it recorded anything (often too little shared memory"),
        (11, "SIGSEGV", "SIGSEGV before it recorded anything (a crash in compiled code"),
        (35, "<N/A>", "signal 35 before it recorded anything"),
        (64, "SIGRTMAX", "SIGRTMAX before it recorded anything"),
    ],
)
def test_a_rank_killed_before_its_first_line_is_named(tmp_path, others, number, name, words):
    for line in others:
        RankFile(tmp_path, 2, 1).line(line)
    log = tmp_path / "log.txt"
    log.write_text(TORCHRUN.format(number=number, name=name))
    killed, exits = read_process_ends(log)
    cause = close(tmp_path, attempt=1, world=4, ended=9.0, killed=killed, exits=exits or {4670: 1})
    assert cause.startswith(f"rank 3 (process 4676) was killed by {words}")
    assert read_json(tmp_path / "failure-1.json")["rank"] == 3


def test_a_rank_that_torchrun_killed_is_not_the_cause(tmp_path):
    log = tmp_path / "log.txt"
    told = TORCHRUN.replace("(exitcode: -{number})", "(exitcode: 1)").partition("\n----")[0]
    log.write_text(told + "\n  traceback : Signal 9 (SIGKILL) received by PID 4675\n")
    assert read_process_ends(log) == ({}, {4676: 1})


def test_an_aborted_rank_is_no_cause_where_another_raised(tmp_path):
    RankFile(tmp_path, 0, 1).line({"failed": "ValueError: no", "kind": "error", "at": 5.0})
    cause = close(tmp_path, attempt=1, world=2, ended=9.0, killed={101: "SIGABRT"})
    assert cause.startswith("rank 0 failed at its start: ValueError: no")


def test_a_killed_process_is_named_where_its_rank_is_not_known(tmp_path):
    cause = close(tmp_path, attempt=1, world=2, ended=9.0, killed={101: "SIGABRT"})
    assert cause.startswith("process 101 was killed by SIGABRT before it recorded anything")


def test_ranks_that_were_told_to_end_are_no_cause_where_another_has_not_begun(tmp_path):
    file = RankFile(tmp_path, 0, 1)
    file.line({"failed": "ended by SIGTERM", "kind": "terminated", "at": 5.0})
    (tmp_path / "log.txt").write_text("srun: error: node7: task 1: Killed\n")
    cause = close(tmp_path, attempt=1, world=2, ended=9.0)
    assert cause == (
        "rank 1 wrote nothing, and rank 0 was ended by SIGTERM; "
        "the log ends: srun: error: node7: task 1: Killed"
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (137, "code 137: SIGKILL (often out of memory)"),
        (-11, "code -11: SIGSEGV (a crash in compiled code"),
        (1, "code 1;"),
        (255, "code 255;"),
        (170, "code 170;"),
    ],
)
def test_an_exit_code_that_stands_for_a_signal_is_told(tmp_path, code, words):
    (tmp_path / "log.txt").write_text("Killed\n")
    cause = close(tmp_path, attempt=1, world=2, ended=9.0, exits={7: code})
    assert cause.startswith(f"no rank started: a process ended with {words}")


def test_a_rank_that_died_after_a_span_did_not_end_well(tmp_path):
    file = RankFile(tmp_path, 0, 1)
    file.line({"span": "validate", "start": 1.0, "end": 2.0})
    (tmp_path / "log.txt").write_text("and then I\n")
    assert close(tmp_path, attempt=1, world=1, ended=9.0) == (
        "rank 0 ended without an error message after validate; the log ends: and then I"
    )


def test_closing_names_the_first_failure_not_those_it_caused(tmp_path):
    words = [("connection lost", "error", 5.0), ("out of memory", "error", 4.0)]
    words.append(("ended by SIGTERM", "terminated", 3.0))
    for rank, (failed, kind, at) in enumerate(words):
        RankFile(tmp_path, rank, 1).line({"failed": failed, "kind": kind, "at": at})
    cause = close(tmp_path, attempt=1, world=3, ended=9.0)
    assert cause.startswith("rank 1 failed") and "out of memory" in cause


@pytest.mark.parametrize(
    ("failed", "told"),
    [
        (
            "is killed by signal: Killed. ",
            r"was killed by SIGKILL after step 7 (often out of memory)",
        ),
        ("is killed by signal: Segmentation fault. ", "was killed by SIGSEGV after step 7"),
        (
            "exited unexpectedly with exit code 1. Details are lost",
            "ended unexpectedly after step 7",
        ),
    ],
)
def test_a_killed_data_loader_worker_is_told_with_its_rank(tmp_path, failed, told):
    file = RankFile(tmp_path, 0, 1)
    file.line({"host": "here", "pid": 7, "steps": [0, 7]})
    failed = f"RuntimeError: DataLoader worker (pid 8) {failed}"
    file.line({"failed": failed, "kind": "error", "at": 5.0})
    cause = close(tmp_path, attempt=1, world=1, ended=9.0)
    assert cause.startswith(f"a data loader worker of rank 0 on here (process 7) {told}")


def test_closing_names_the_rank_that_the_others_waited_for(tmp_path):
    for rank in (0, 1):
        RankFile(tmp_path, rank, 1).line({"host": "here", "pid": 100 + rank, "steps": [0, 7]})
    stalled = {"seconds": 10.0, "span": "", "steps": 8, "laps": 2}
    waits, still = RankFile(tmp_path, 0, 1), RankFile(tmp_path, 1, 1)
    waits.line({"stalled": stalled})
    waits.line({"failed": "no progress for 10 s", "kind": "stalled", "at": 5.0})
    still.line({"failed": "ended by SIGTERM", "kind": "terminated", "at": 6.0})
    assert close(tmp_path, attempt=1, world=2, ended=9.0) == (
        "rank 1 on here (process 101) made no progress after step 7: the others waited 10 s"
    )


def test_closing_names_the_rank_that_had_left_its_loop_before_another_failed(tmp_path):
    early = RankFile(tmp_path, 1, 1)
    early.line({"ended": 4.0, "guest": True, "world": 2, "taken": 63, "alone": False})
    waits = RankFile(tmp_path, 0, 1)
    waits.line({"guest": True, "host": "here", "pid": 7, "steps": [0, 64]})
    waits.line({"failed": "RuntimeError: Connection closed by peer", "kind": "error", "at": 5.0})
    assert close(tmp_path, attempt=1, world=2, ended=9.0) == (
        "rank 0 on here (process 7) failed after step 64: RuntimeError: Connection closed by peer; "
        "rank 1 had left its loop after 63 steps: every rank must make the same number of steps"
    )


def test_closing_tells_of_several_processes_that_trained_as_one_rank(tmp_path):
    RankFile(tmp_path, 0, 1).line(
        {"ended": 4.0, "guest": True, "world": 1, "taken": 63, "alone": True, "launched": 1.0}
    )
    rivals_folder(tmp_path, 1).mkdir(parents=True)
    (rivals_folder(tmp_path, 1) / "0-17").touch()
    told = "2 processes trained as rank 0, each alone: they are not distributed"
    assert close(tmp_path, attempt=1, world=1, ended=9.0) == told
    assert close(tmp_path, attempt=1, world=2, ended=9.0) == told
    assert not (tmp_path / "outcome.json").exists()


def test_a_program_that_makes_one_process_for_many_devices_is_not_distributed(tmp_path):
    RankFile(tmp_path, 0, 1).line(
        {"ended": 4.0, "guest": True, "world": 1, "taken": 1, "alone": True, "launched": 1.0}
    )
    cause = close(tmp_path, attempt=1, world=2, ended=9.0)
    assert cause == "the program is not distributed: every process trains alone"


def test_a_header_far_back_in_a_long_file_is_still_found(tmp_path):
    file = RankFile(tmp_path, 0, 1)
    file.line({"host": "here", "pid": 7})
    for _ in range(3000):
        file.line({"filler": "x" * 40})
    assert read_tail(tmp_path, 0, 1).notes.pid == 7


WRITER = """
import sys, time
from pathlib import Path
from scalewise.probe import Probe
from scalewise.probe.heartbeat import Heartbeat
from scalewise.record.write import RankFile
probe = Probe(RankFile(Path(sys.argv[1]), 0, 1))
watch = Heartbeat(probe)
probe.start()
for _ in range(30):
    time.sleep(0.002); probe.lap("forward"); probe.step(4)
print("done", flush=True)
time.sleep(60)
"""


def test_all_but_the_last_second_survives_kill_9(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"done\n"
    deadline = time.monotonic() + 20  # The thread flushes within a second, whatever the loop does.
    while not rank_file(tmp_path, 0).read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.2)
    writer.kill()
    writer.communicate()
    lines = [json.loads(line) for line in rank_file(tmp_path, 0).read_text().splitlines()]
    assert sum(line["samples"] for line in lines) == 30 * 4


def test_a_rank_that_hangs_too_long_shows_its_stacks_and_ends(tmp_path):
    hangs = WRITER.replace("Heartbeat(probe)", "Heartbeat(probe, patience=2.0)")
    done = subprocess.run(
        [sys.executable, "-c", hangs, str(tmp_path)], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 1 and "time.sleep(60)" not in done.stdout
    assert "Current thread" in done.stderr and "in <module>" in done.stderr
    word = read_tail(tmp_path, 0, 1)
    assert word.last["kind"] == "stalled" and word.notes.stall.steps == 30


def test_a_rank_whose_agent_is_gone_leaves(tmp_path):
    agent = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {WRITER!r}, {str(tmp_path)!r}])
time.sleep(60)
"""
    env = {**os.environ, "TORCHELASTIC_RUN_ID": "x"}
    with subprocess.Popen(
        [sys.executable, "-c", agent], stdout=subprocess.PIPE, env=env
    ) as started:
        assert started.stdout.readline() == b"done\n"
        started.kill()
        started.stdout.read()  # Until the rank, which holds it too, is gone.
    last = read_tail(tmp_path, 0, 1).last
    assert last["kind"] == "orphaned" and f"(process {started.pid}) is gone" in last["failed"]


def test_a_rank_that_is_told_to_end_leaves_its_last_words(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"done\n"
    writer.send_signal(signal.SIGTERM)
    writer.communicate(timeout=30)
    assert writer.returncode == 128 + signal.SIGTERM
    last = read_tail(tmp_path, 0, 1).last
    assert last["kind"] == "terminated"
    lines = [json.loads(line) for line in rank_file(tmp_path, 0).read_text().splitlines()]
    assert sum(line.get("samples", 0) for line in lines) == 30 * 4


def test_a_full_disk_is_said_and_what_was_written_stays(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, limit[1]))
    try:
        file = RankFile(tmp_path, 0, 1)
        for _ in range(20):
            file.line({"filler": "x" * 40})
        with pytest.raises(RecordError, match=r"cannot write .*rank-00000\.jsonl") as full:
            file.line({"filler": "x" * 8000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert "stays readable" in full.value.hint
    assert read_tail(tmp_path, 0, 1).last["filler"] == "x" * 40


class RefusingDisk:
    """Stands for ``os.write``: takes ``room`` bytes, then refuses with ``error``."""

    def __init__(self, monkeypatch, room=math.inf, error=errno.ENOSPC):
        self.room, self.error, self._write = room, error, os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, file, data):
        if self.room <= 0:
            raise OSError(self.error, os.strerror(self.error))
        count = self._write(file, bytes(data)[: int(min(self.room, 7))])  # Short writes.
        self.room -= count
        return count


@pytest.mark.parametrize(
    "error", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.EIO]
)
def test_lines_that_a_disk_refuses_are_written_whole_and_in_order_later(
    tmp_path, monkeypatch, error, capsys
):
    disk = RefusingDisk(monkeypatch, room=50, error=error)
    file = RankFile(tmp_path, 0, 1)
    for number in range(10):
        file.line({"number": number})
    assert 40 < len(rank_file(tmp_path, 0).read_bytes()) <= 56  # A part of a line, then nothing.
    disk.room = math.inf
    file.write_kept()
    file.line({"ended": 1.0})
    file.close()
    lines = [json.loads(line) for line in rank_file(tmp_path, 0).read_text().splitlines()]
    assert [line["number"] for line in lines if "number" in line] == list(range(10))
    assert lines[-2]["disk"]["error"] == os.strerror(error) and "ended" in lines[-1]
    assert capsys.readouterr().err.count("trying again for 60 s") == 1


def test_a_disk_that_refuses_for_too_long_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEWISE_DISK_PATIENCE", "0.2")
    file = RankFile(tmp_path, 0, 1)
    RefusingDisk(monkeypatch, room=0)
    file.line({"kept": 1})
    with pytest.raises(RecordError, match=r"cannot write .*: No space left on device"):
        file.settle()
    with pytest.raises(RecordError):
        file.line({"kept": 2})


def test_what_a_disk_refuses_is_not_kept_without_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("scalewise.record.write.MAX_KEPT_BYTES", 3000)
    file = RankFile(tmp_path, 0, 1)
    RefusingDisk(monkeypatch, room=0)
    for _ in range(10):
        file.line({"filler": "x" * 40})
    with pytest.raises(RecordError):
        file.line({"filler": "x" * 3000})


def test_a_write_that_takes_long_is_noted(tmp_path, monkeypatch):
    monkeypatch.setattr("scalewise.record.write.BLOCKED_SECONDS", -1.0)
    file = RankFile(tmp_path, 0, 1)
    file.line({"number": 0})
    file.line({"number": 1})
    assert '"disk":{"error":null,"refused":0.0,"blocked":0.0}' in file.path.read_text()


def test_reading_names_a_missing_rank_file(tmp_path):
    home = play(a_run(topology="1x2"), tmp_path).folder
    rank_file(home, 1).unlink()
    with pytest.raises(RecordError, match=r"rank-00001\.jsonl"):
        read_rank(home, 1, 1)


AGENT = """E1116 01:36:08.771000 24775 torch/distributed/elastic/multiprocessing/api.py:10] failed \
(exitcode: 1) local_rank: 0 (pid: 24847) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/lib/torch/distributed/run.py", line 1032, in <module>
    main()
  File "/lib/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 24847)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""  # noqa: W291 - as torchrun writes it
RAISED = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 7, in <module>
[rank1]:     raise ValueError("bad batch\\nwith two lines")
[rank1]: ValueError: bad batch
[rank1]: with two lines
"""


def a_program_that_ended(folder, log, **last):
    word = {"ended": 4.0, "guest": True, "world": 1, "taken": 5, "alone": False, "launched": 1.0}
    RankFile(folder, 0, 1).line({**word, **last})
    (folder / "log.txt").write_text(log)
    return close(folder, attempt=1, world=1, ended=9.0, exits={24847: 3})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "epoch 1\nI stop: no data\n",
            "the program ended with code 3; the log ends: I stop: no data",
        ),
        ("", "the program ended with code 3"),
    ],
)
@pytest.mark.parametrize("taken", [0, 5])
def test_a_program_that_leaves_with_a_code_is_told_with_its_last_words(
    said, words, taken, tmp_path
):
    assert a_program_that_ended(tmp_path, said + AGENT, taken=taken) == words


def test_the_words_of_torchrun_are_not_the_programs(tmp_path):
    write_json(tmp_path / "job.json", {"log": len("an earlier attempt: ü\n".encode())})
    log = "an earlier attempt: ü\nepoch 1\n" + RAISED + AGENT
    (tmp_path / "log.txt").write_text(log, encoding="utf-8")
    lines = own_lines(tmp_path)
    assert lines == ["epoch 1", *RAISED.splitlines()]
    cause = "rank 1 failed after step 5: ValueError: bad batch\nwith two lines (code 1)"
    assert first_traceback(lines, cause) == RAISED.rstrip()
    assert first_traceback(lines) == "\n".join(RAISED.splitlines()[:-1])
    assert first_traceback(["epoch 1"]) == ""


NOT_LAUNCHED = """\
srun: error: Task launch for StepId=29.3 failed on node n2: Invalid job credential
srun: error: Application launch failed: Invalid job credential
srun: launch/slurm: _step_signal: Terminating StepId=29.3
"""
EXITED = "srun: error: n1: task 0: Exited with exit code 1\nsrun: Terminating StepId=5.1\n"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (NOT_LAUNCHED, NOT_LAUNCHED.splitlines()[0]),
        (f"No module named torch\n{EXITED}", "No module named torch"),
        ("srun: Job step aborted\n", "srun: Job step aborted"),
        ("scalewise: attempt 1 on n1\n", "(it is empty)"),
    ],
)
def test_the_log_ends_with_what_was_wrong_and_not_with_what_srun_adds(log, told, tmp_path):
    RankFile(tmp_path, 0, 1)
    again = f"{log}scalewise: failed: no rank started; the log ends: {told}\n"
    for text in (log, again):  # A job closes its own record; who watches it does so again.
        (tmp_path / "log.txt").write_text(text)
        cause = close(tmp_path, attempt=1, world=1, ended=9.0)
        assert cause == f"no rank started; the log ends: {told}"


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", "cancelled"),
        (
            "slurmstepd-n2: error: *** STEP 5.0 ON n2 CANCELLED AT 2026-01-01T00:00:00 "
            "DUE TO TIME LIMIT ***",
            "n2 was cancelled due to time limit",
        ),
        (
            "*** STEP 5.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, "
            "SEE SLURMCTLD LOG FOR DETAILS ***",
            "due to node failure",
        ),
        ("srun: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***", ""),
        ("all is well", ""),
    ],
)
def test_what_slurm_wrote_into_the_log_says_why_a_job_ended(tmp_path, said, cause):
    (tmp_path / "log.txt").write_text(f"before\n{said}\nafter\n")
    told = cancel_reason(tmp_path / "log.txt")
    assert cause in told and bool(told) == bool(cause)


def _program(folder, *, samples_per_step=None, ranks=2, **facts):
    """Write the record of a program whose ranks each saw two steps of 20 and 5 samples."""
    told = {"split": True, "loads": False, "samples": ["a", "b"], **facts}
    each = {"seconds": [0.1, 0.1], "samples": [20, 5], "at": [0.0, 0.1]}
    for rank in range(ranks):
        lines = (
            {"schema": 1, "rank": rank, "world": ranks, "guest": True, "host": "here"},
            {"span": "launch", "start": 0.0, "end": 0.0},
            {"steps": [0, 2], "samples": 25, "of": 2, "index": [0, 1], "each": each},
            {"span": "train", "start": 0.0, "end": 0.2, "samples": 25, "taken": 2},
            {"facts": told, "loader": {"rate": 100.0, "workers": 0}},
            {"outline": {"epochs": None, "steps": 2, "samples": None, "seen": 25}},
            {"ended": 0.2},
        )
        text = "".join(json.dumps({"attempt": 1, **line}) + "\n" for line in lines)
        rank_file(folder, rank).write_text(text)
    write_json(
        folder / "outcome.json", {"attempt": 1, "ranks": ranks, "started": 0.0, "ended": 1.0}
    )
    topology = Topology(1, ranks)
    return read_run(
        folder,
        RunSpec(topology=topology, program=("train.py",), samples_per_step=samples_per_step),
    )


def test_samples_that_ranks_share_are_counted_once_wherever_they_are_told(tmp_path):
    first, second = _program(tmp_path).ranks
    assert first.steps.samples.tolist() == [10, 3]
    assert second.steps.samples.tolist() == [10, 2]
    for rank, seen in ((first, 13), (second, 12)):
        assert rank.outline.seen == seen
        assert [span.samples for span in rank.spans if span.name == "train"] == [seen]
        assert rank.notes.loader.rate == 50.0
        assert rank.notes.facts.batch_digests == ["a", "b"]


@pytest.mark.parametrize(
    "given",
    [{"split": False}, {"samples": []}, {"ranks": 1}],
    ids=str,
)
def test_samples_that_nobody_is_known_to_share_are_counted_as_they_were_told(given, tmp_path):
    for rank in _program(tmp_path, **given).ranks:
        assert rank.steps.samples.tolist() == [20, 5]
        assert rank.outline.seen == 25


def test_stated_samples_per_step_replace_what_was_seen(tmp_path):
    for rank in _program(tmp_path, samples_per_step=20).ranks:
        assert rank.steps.samples.tolist() == [20, 20]
        assert rank.outline.seen == 40
