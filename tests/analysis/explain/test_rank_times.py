"""A slow rank is seen in rank × time, with the time in which it is slow; noise is not one."""

from dataclasses import replace

import numpy as np
import pytest

from builders import a_run
from fake_study import play
from scalewise.analysis.explain.rank_times import MAX_COLUMNS, MAX_ROWS, rank_times
from scalewise.analysis.explain.run_view import RunView
from scalewise.report.text.explanation import rank_speed_sentence

CLEAN = {"host": 0.0, "compute": 1e-3, "ring": 1e-3, "network": 1e-3, "latency": 0.0}
JITTER = {**CLEAN, "jitter": 0.05}


def slowed(record, rank, factor, steps):
    """Return a record in which a rank works longer in some steps, and the others wait for it."""

    def longer(each):
        phases = dict(each.steps.phases)
        chosen = np.zeros(len(each.steps.index), dtype=bool)
        chosen[steps] = True
        own = phases["forward"] + phases["backward"]
        added = np.where(chosen, own * (factor - 1), 0.0)
        name = "forward" if each.rank == rank else "sync"
        phases[name] = phases[name] + added
        seconds = each.steps.seconds + added
        return replace(each, steps=replace(each.steps, phases=phases, seconds=seconds))

    return replace(record, ranks=tuple(map(longer, record.ranks)))


def heat(*records):
    return rank_times([RunView.of(record) for record in records])


def a_record(folder, topology="1x8", **options):
    return play(a_run(topology=topology, batch=16, steps=600, options=options), folder)


def test_equal_ranks_are_equally_fast(tmp_path):
    found = heat(a_record(tmp_path, **JITTER))
    assert not found.is_straggler
    assert (len(found.rows), len(found.rows[0].lag)) == (8, MAX_COLUMNS)
    assert len(found.times) == MAX_COLUMNS + 1
    assert rank_speed_sentence(found).startswith("All ranks are equally fast: the slowest is 0.")


def test_a_rank_that_is_slow_from_a_time_on_is_found(tmp_path):
    record = slowed(a_record(tmp_path, "2x4", **JITTER), 5, 1.31, slice(300, None))
    found = heat(record)
    assert found.is_straggler
    assert (found.slowest.rank, found.slowest.host) == (5, "node-1")
    assert found.slowest.lag == pytest.approx(0.31, abs=0.02)
    begins = record.ranks[5].steps.seconds[:300].sum()
    assert found.slowest.since == pytest.approx(begins, rel=0.05)
    assert found.slowest.until is None
    row = found.rows[5].lag
    assert max(row[:20]) < 0.1 < 0.25 < min(row[-20:])
    # The others wait for it: their steps take as long, and they are not slow.
    assert max(found.rows[4].lag) < 0.1
    sentence = rank_speed_sentence(found)
    assert sentence.startswith("Rank 5 on node-1 is 3")
    assert " slower than the typical rank after the first " in sentence


def test_a_rank_that_is_slow_for_a_while_or_always_is_found(tmp_path):
    record = a_record(tmp_path, **JITTER)
    passing = heat(slowed(record, 2, 1.5, slice(200, 300))).slowest
    assert passing.rank == 2
    assert None not in (passing.since, passing.until)
    always = heat(slowed(record, 3, 1.1, slice(None))).slowest
    assert (always.rank, always.since, always.until) == (3, None, None)


def test_the_slow_one_of_two_ranks_is_named(tmp_path):
    found = heat(slowed(a_record(tmp_path, "1x2", **JITTER), 1, 1.31, slice(None)))
    assert found.is_straggler
    assert found.slowest.lag == pytest.approx(0.31, abs=0.02)


def test_a_straggler_among_a_thousand_ranks_is_seen_in_its_group(tmp_path):
    record = play(a_run(topology="16x8", batch=16, steps=100, options=CLEAN), tmp_path)
    ranks = record.ranks * 8  # 1,024
    ranks = tuple(replace(each, rank=rank) for rank, each in enumerate(ranks))
    found = heat(slowed(replace(record, ranks=ranks), 700, 1.2, slice(50, None)))
    assert (len(found.rows), found.ranks_per_row) == (MAX_ROWS, 16)
    (row,) = (row for row in found.rows if row.first <= 700 <= row.last)
    assert row.lag[-1] == pytest.approx(0.2, abs=0.01)
    assert found.slowest.rank == 700
    assert sum(max(row.lag) > 0.1 for row in found.rows) == 1


def test_without_phases_waiting_hides_a_straggler_and_that_is_said(tmp_path):
    record = a_record(tmp_path, **CLEAN)
    ranks = (replace(r, steps=replace(r.steps, phases={})) for r in record.ranks)
    found = heat(replace(record, ranks=tuple(ranks)))
    assert not found.without_waiting
    assert rank_speed_sentence(found).endswith("whether one rank is slower was not measured.")


def test_the_run_with_the_slow_rank_is_shown_and_one_rank_has_none(tmp_path):
    equal = a_record(tmp_path, **CLEAN)
    slow = slowed(replace(equal, spec=replace(equal.spec, repeat=2)), 0, 1.3, slice(None))
    assert heat(equal, slow).repeat == 2
    assert heat(a_record(tmp_path, "1x1", **CLEAN)) is None
    assert rank_speed_sentence(None) is None


def test_few_steps_are_a_column_each(tmp_path):
    found = heat(play(a_run(topology="1x4", batch=16, steps=30, options=JITTER), tmp_path))
    assert len(found.times) == len(found.rows[0].lag) + 1 <= 31


@pytest.mark.filterwarnings("error")
def test_no_rank_is_slower_than_one_of_which_nothing_was_measured(tmp_path):
    record = a_record(tmp_path, "1x2", **CLEAN)

    def without_work(chosen):
        first, second = record.ranks
        steps = first.steps
        none = np.where(np.arange(len(steps.index)) < chosen, 0.0, steps.seconds)
        first = replace(first, steps=replace(steps, phases={}, seconds=none))
        second = replace(second, steps=replace(second.steps, phases={}))
        return replace(record, ranks=(first, second))

    assert heat(without_work(10_000)) is None
    assert np.isfinite(heat(without_work(300)).slowest.lag)
