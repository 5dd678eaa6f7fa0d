"""One step on machines that nobody has measured: by hand, by property, by the fake machine."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from builders import a_run
from fake_study import play as play_run
from paths import DOCS
from scalewise.analysis.simulate import (
    PHASES,
    Bucket,
    Contention,
    Cores,
    Ddp,
    Fsdp,
    Link,
    Machine,
    Network,
    Pipeline,
    Spread,
    Sweep,
    Work,
    concurrent_steps,
    even_buckets,
    fit_exchange,
    fit_link,
    load_inputs,
    make_buckets,
    parse_sweep,
    simulate,
    strategy_from_spec,
)
from scalewise.analysis.simulate.schedule import Task, run_queues
from scalewise.analysis.simulate.spread import independent_spread, synchronized_spread
from scalewise.errors import NotEnoughData, SpecError
from scalewise.frameworks.fake import Law
from scalewise.report.text.simulation import describe_note, describe_reach
from scalewise.spec import Topology

MB = 2**20
PAIR = Topology(1, 2)
HERE = Network(Link(0.1, 100.0))
"""Between two ranks of a node, 100 bytes are reduced in 2 × 0.1 + 100/100 = 1.2 seconds."""


def work(*buckets, **changes):
    """Return a step of 4 seconds: forward 1, backward 2, optimizer 1."""
    values = {"forward": 1.0, "backward": 2.0, "optimizer": 1.0, "samples": 8.0} | changes
    return Work(buckets=tuple(Bucket(*each) for each in buckets), **values)


def one(step, topology=PAIR, strategy=None, network=HERE, **facts):
    """Simulate one topology."""
    machine = Machine(exchange=network, **facts)
    (found,) = simulate(step, [topology], machine, strategy)
    assert set(found.phases) == set(PHASES)
    assert math.fsum(found.phases.values()) == pytest.approx(found.step)
    return found


# Data parallelism, by hand.


def test_a_single_bucket_that_comes_last_is_exchanged_in_full_view():
    found = one(work((100, 1.0)))
    assert found.exposed == pytest.approx(1.2) and found.step == pytest.approx(5.2)
    assert found.throughput == pytest.approx(16 / 5.2)


def test_what_is_ready_early_is_hidden_and_the_last_bucket_never_is():
    found = one(work((100, 0.25), (10, 1.0)))  # Ready at 1.5, done at 2.7, before 3.0.
    assert found.exposed == pytest.approx(0.2 + 0.1) and found.communication == pytest.approx(1.5)


def test_buckets_wait_for_each_other():
    found = one(work((100, 0.5), (100, 0.6), (100, 1.0)))  # From 2.0 to 3.2, 4.4, 5.6; 3.0 ends.
    assert found.exposed == pytest.approx(2.6)


def test_a_backward_may_go_on_when_all_gradients_are_there():
    assert one(work((100, 0.4))).exposed == pytest.approx(0)


def test_a_single_device_exchanges_nothing():
    found = one(work((100, 1.0)), Topology(1, 1))
    assert found.step == 4 and found.exposed == 0 and found.throughput == 2


def test_gradients_of_several_micro_steps_are_exchanged_once():
    found = one(work((100, 1.0), accumulate=3))
    assert found.step == pytest.approx(3 * 3 + 1 + 1.2)
    assert found.phases["forward"] == 3 and found.phases["backward"] == 6


def test_input_and_the_rest_of_a_step_hide_nothing():
    found = one(work((100, 1.0), input=0.5, other=0.25))
    assert found.step == pytest.approx(5.2 + 0.75) and found.phases["input"] == 0.5


def test_a_step_without_samples_has_no_throughput():
    assert one(work(samples=None)).throughput is None


# What disturbs.


def test_computing_and_exchanging_slow_each_other_only_while_both_go_on():
    # 1.2 s of exchange take 1.8 from 2.0 to 3.8; meanwhile 1.8/2 = 0.9 of the second that is
    # left of the backward is done; the rest ends at 3.9.
    found = one(work((100, 0.5)), contention=Contention(compute=2.0, exchange=1.5))
    assert found.phases["contention"] == pytest.approx(0.9) and found.exposed == pytest.approx(0)
    assert found.step == pytest.approx(4.9)


def test_ranks_that_fill_all_cores_share_them_with_their_exchange():
    cores = Cores(count=4, busy_cores=0.5)
    assert cores.at(2) == Contention() and cores.at(4) == Contention(1.5, 1.5)
    assert cores.at(8) == Contention(1.5, 1.5)  # That cores are too few is seen without exchange.


def test_devices_of_a_node_share_its_memory():
    machine = Machine(exchange=HERE, sharing={2: 1.1, 4: 1.5})
    assert [machine.sharing_factor(n) for n in (1, 2, 3, 4, 8)] == pytest.approx(
        [1, 1.1, 1.3, 1.5, 1.5]
    )
    found = one(work((100, 1.0)), sharing={2: 1.1})
    assert found.step == pytest.approx(4.4 + 1.2) and found.phases["sharing"] == pytest.approx(0.4)


def test_all_wait_for_the_slowest():
    found = one(work((100, 1.0)), spread=Spread((1.0, 1.0, 1.0, 2.0)))
    late = 1 + 1 - (3 / 4) ** 2
    assert found.step == pytest.approx(4 * late + 1.2)
    assert found.phases["balance"] == pytest.approx(4 * (late - 1))


def test_the_slowest_of_many_is_the_slowest_that_was_seen():
    spread = Spread((0.9, 1.0, 1.1))
    assert spread.slowest(1) == pytest.approx(1.0)
    assert spread.slowest(16_384) == pytest.approx(1.1)


def test_what_slows_all_ranks_at_once_is_no_spread():
    assert set(synchronized_spread(np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])).ratios) == {1.0}
    drifting = np.repeat([1.0, 2.0, 3.0], 20)
    assert set(independent_spread([drifting]).ratios) == {1.0}


def test_ranks_that_are_always_slower_are_spread():
    ratios = independent_spread([np.full(20, 1.0), np.full(20, 3.0)]).ratios
    assert min(ratios) == 0.5 and max(ratios) == 1.5


# Collectives.


def test_a_ring_takes_what_the_formula_says():
    near, far = Link(1.0, 10.0), Link(5.0, 2.0)
    assert Network(near).seconds("all-reduce", 40, Topology(1, 4)) == 6 * 1.0 + 1.5 * 40 / 10
    ring = Network(near, far).seconds("all-reduce", 40, Topology(2, 2))
    assert ring == 4 * 1.0 + 2 * 5.0 + 1.5 * 40 / 2
    assert Network(near, far).seconds("all-gather", 40, Topology(2, 2)) == ring / 2


def test_a_tree_has_few_steps_and_sends_everything_twice():
    network = Network(Link(1.0, 10.0), Link(5.0, 2.0), "tree")
    assert network.seconds("all-reduce", 40, Topology(4, 8)) == 2 * (3 * 1.0 + 2 * 5.0 + 40 / 2)
    ring = replace(network, algorithm="ring").seconds("reduce-scatter", 40, Topology(4, 8))
    assert network.seconds("reduce-scatter", 40, Topology(4, 8)) == ring


def test_a_hierarchy_leaves_the_node_once():
    network = Network(Link(1.0, 10.0), Link(5.0, 2.0), "hierarchical")
    inner, outer = 6 * 1.0 + 1.5 * 40 / 10, 2 * 5.0 + 40 / 2
    assert network.seconds("all-reduce", 40, Topology(2, 4)) == inner + outer


def test_the_quickest_way_is_the_least_of_all():
    network = Network(Link(1e-5, 1e10), Link(1e-5, 1e10), "quickest")
    for size, best in ((1e3, "tree"), (1e9, "ring")):
        ways = {
            way: replace(network, algorithm=way).seconds("all-reduce", size, Topology(16, 1))
            for way in ("ring", "tree", "hierarchical")
        }
        assert network.seconds("all-reduce", size, Topology(16, 1)) == ways[best]
        assert ways[best] == min(ways.values())


# Shards and stages.


def test_sharded_blocks_are_gathered_one_ahead():
    # Two blocks of 100 bytes: a gather or scatter takes 0.6. Gathers end at 0.6 and 1.2; the
    # forward of 0.5 each goes from 0.6 to 1.1 and from 1.2 to 1.7; the next gathers end at 1.8,
    # 2.4. The backward of 1 each ends at 2.8, 3.8; scatters at 3.4, 4.4.
    found = one(work((100, 0.5), (100, 1.0)), strategy=Fsdp())
    assert found.step == pytest.approx(4.4 + 0.5)  # Two devices share the optimizer's second.
    assert found.phases["optimizer"] == 0.5 and found.communication == pytest.approx(6 * 0.6)
    assert found.exposed == pytest.approx(4.4 - 3)


def test_shards_are_scattered_in_the_last_micro_step_alone():
    once, twice = (one(work((1, 1.0), accumulate=n), strategy=Fsdp()) for n in (1, 2))
    gather = 0.1 + 0.5 * 1 / 100
    assert once.communication == pytest.approx(3 * gather)
    assert twice.communication == pytest.approx(5 * gather)


@pytest.mark.parametrize(("stages", "small", "rounds"), [(2, 1, 1), (4, 8, 1), (4, 8, 2)])
def test_the_bubble_of_a_pipeline_is_the_known_share(stages, small, rounds):
    free = Network(Link(0.0, 1e30), Link(0.0, 1e30))
    step = work((100, 1.0), optimizer=0.0)
    found = one(step, Topology(1, stages), Pipeline(stages, small, rounds), free)
    assert found.phases["bubble"] / found.step == pytest.approx(
        (stages - 1) / (rounds * small + stages - 1)
    )
    assert found.throughput == pytest.approx(8 / found.step)  # One replica.
    spec = {"strategy": "pipeline", "topology": f"1x{stages}", "framework": "torch"}
    if rounds == 1 and small > 1:
        run = a_run(**spec, workload="gpt", micro_batches=small)
        assert found.phases["bubble"] / found.step == pytest.approx(run.bubble)


def test_stages_hand_over_what_they_computed_and_reduce_their_part_of_the_gradients():
    far = Network(Link(0.1, 100.0), Link(0.2, 10.0))
    found = one(work((200, 1.0)), Topology(2, 2), Pipeline(2, 4, activation_bytes=100), far)
    assert found.phases["bubble"] == pytest.approx(3 / 8 + 2 * (0.1 + 1))
    # 100 bytes between two nodes, behind nothing: the stage's last gradient comes last.
    assert found.exposed == pytest.approx(2 * 0.2 + 100 / 10)
    wide = one(work((200, 1.0)), Topology(4, 1), Pipeline(4, 4, activation_bytes=100), far)
    assert wide.phases["bubble"] == pytest.approx(3 * 3 / 16 + 2 * 3 * (0.2 + 10))


def test_queues_that_wait_for_each_other_are_refused():
    with pytest.raises(SpecError, match="both queues wait for each other after 0 and 0 tasks"):
        run_queues([Task(1.0, after=1)], [Task(1.0, after=1)])


def test_a_strategy_is_that_of_a_run_or_refused():
    def torch(**run):
        return strategy_from_spec(a_run(framework="torch", workload="gpt", **run))

    assert torch(strategy="ddp", topology="1x4") == Ddp()
    assert torch(strategy="fsdp", topology="1x4") == Fsdp()
    piped = torch(strategy="ddp", topology="1x4", parallelism={"pipeline": 2}, micro_batches=4)
    assert piped == Pipeline(2, 4)
    for other in ("zero1", "hsdp", "tensor"):
        with pytest.raises(SpecError, match=f"{other} with .* cannot be simulated"):
            torch(strategy=other, topology="1x4")


# Properties.

seconds = some.floats(0.0, 10.0)
shares = some.lists(some.floats(0.0, 1.0), min_size=1, max_size=8).map(sorted)
steps = some.builds(
    lambda forward, backward, ready, size: work(
        *((size, share) for share in ready), forward=forward, backward=backward
    ),
    seconds, seconds, shares, some.floats(1.0, 1e9),
)  # fmt: skip
links = some.builds(Link, some.floats(0.0, 0.1), some.floats(1.0, 1e12))
ways = some.sampled_from(["ring", "tree", "hierarchical", "quickest"])
networks = some.builds(Network, links, links, ways)
places = some.builds(Topology, some.integers(1, 64), some.integers(1, 16))
strategies = some.sampled_from([None, Fsdp(), Pipeline(1, 4)])


@settings(deadline=None, max_examples=50)
@given(steps, networks, places, strategies, some.floats(1.0, 100.0))
def test_more_bandwidth_is_never_slower(step, network, place, strategy, more):
    quicker = replace(
        network,
        inside=Link(network.inside.latency / more, network.inside.bandwidth * more),
        between=Link(network.between.latency / more, network.between.bandwidth * more),
    )
    before, after = (one(step, place, strategy, each).step for each in (network, quicker))
    assert after <= before * (1 + 1e-9)


@settings(deadline=None, max_examples=50)
@given(steps, networks, places)
def test_a_step_lies_between_all_hidden_but_the_last_bucket_and_nothing_hidden(
    step, network, place
):
    found = one(step, place, None, network)
    parts = [network.seconds("all-reduce", each.size, place) for each in step.buckets]
    late = step.backward * (1 - step.buckets[-1].ready)
    assert found.exposed >= (parts[-1] - late) * (1 - 1e-9) - 1e-9
    assert step.seconds * (1 - 1e-9) <= found.step <= (step.seconds + sum(parts)) * (1 + 1e-9)


@settings(deadline=None, max_examples=50)
@given(steps, networks, places, some.floats(1.0, 4.0), some.floats(1.0, 4.0))
def test_whatever_disturbs_never_makes_a_step_quicker(step, network, place, slower, late):
    plain = one(step, place, None, network).step
    disturbed = one(
        step, place, None, network,
        contention=Contention(slower, slower), sharing={place.devices: slower},
        spread=Spread((1.0, late)),
    ).step  # fmt: skip
    assert disturbed >= plain * (1 - 1e-9)


@settings(deadline=None, max_examples=50)
@given(steps, networks, strategies)
def test_larger_machines_have_longer_steps(step, network, strategy):
    step = replace(step, optimizer=0.0, other=1.0)  # Of what is shared, less is left to do.
    found = [one(step, Topology(nodes, 8), strategy, network).step for nodes in (1, 2, 16, 2048)]
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise(found))


# Sweeps.


def stored(network, topology, sizes=(4, 2**10, 2**16, 2**20, 2**26), processor=0.5):
    """Return what doctor keeps of collectives that take what a network says."""
    rows = [
        {"operation": operation, "bytes": size, "processor": processor * time,
         "seconds": {"value": time, "low": time, "high": time, "count": 5}}
        for operation in ("all-reduce", "all-gather")
        for size in sizes
        for time in [network.seconds(operation, size, topology)]
    ]  # fmt: skip
    hosts = [f"node-{number}" for number in range(topology.nodes)]
    count = {"ranks": topology.world, "ranks_per_node": topology.devices}
    return {"hosts": hosts, **count, "rows": rows}


NEAR, FAR = Link(2e-6, 1e11), Link(2e-5, 1e10)


def test_links_are_found_in_what_doctor_keeps():
    network = Network(NEAR, FAR)
    inside = fit_link(parse_sweep(stored(network, Topology(1, 4))))
    assert inside.link.latency == pytest.approx(2e-6) and inside.error < 1e-9
    assert inside.link.bandwidth == pytest.approx(1e11)
    between = fit_link(parse_sweep(stored(network, Topology(2, 4))), inside.link)
    assert between.link.latency == pytest.approx(2e-5)
    assert between.link.bandwidth == pytest.approx(1e10)


def test_sweeps_are_believed_where_they_were_made_and_explain_the_rest():
    network = Network(NEAR, FAR)
    sweeps = [parse_sweep(stored(network, place)) for place in (PAIR, Topology(2, 2))]
    found = fit_exchange(sweeps)
    assert found.busy_cores == pytest.approx(0.5)
    for place in (PAIR, Topology(2, 2), Topology(1, 8), Topology(64, 8)):
        for operation in ("all-reduce", "all-gather", "reduce-scatter"):
            for size in (4, 3 * 2**20, 2**28):
                told = found.seconds(operation, size, place)
                assert told == pytest.approx(network.seconds(operation, size, place), rel=0.02)


def test_a_simulation_says_what_it_rests_on():
    sweeps = [parse_sweep(stored(Network(NEAR, FAR), place)) for place in (PAIR, Topology(2, 2))]
    machine = Machine(exchange=fit_exchange(sweeps), sharing={2: 1.1})
    places = [Topology(1, 1), PAIR, Topology(2, 4)]
    told = [describe_reach(each) for each in simulate(work((100, 1.0)), places, machine)]
    assert told == [
        "one device does not communicate",
        "communication was timed on 1x2",
        "communication was timed on 1x2, 2x2, and is extrapolated with fitted links; "
        "the slow-down between devices of one node was measured up to 2 devices",
    ]
    assert describe_reach(one(work())) == (
        "links as given; the slow-down between devices of one node is unknown"
    )


def test_a_law_that_does_not_hold_is_not_needed_where_a_sweep_was_made():
    odd = stored(HERE, PAIR, sizes=(100, 200))
    odd["rows"][1]["seconds"]["value"] = 9.2
    found = fit_exchange([parse_sweep(odd)])
    assert found.seconds("all-reduce", 150, PAIR) == pytest.approx((1.2 + 9.2) / 2)
    assert found.seconds("all-reduce", 50, PAIR) == pytest.approx(1.2)
    assert found.seconds("all-reduce", 400, PAIR) == pytest.approx(18.4)


def test_a_machine_that_was_swept_on_nodes_alone_has_one_kind_of_link():
    found = fit_exchange([parse_sweep(stored(Network(FAR, FAR), Topology(2, 1)))]).network
    assert found.inside == found.between


def test_a_sweep_without_processor_times_says_nothing_of_cores():
    old = stored(HERE, PAIR)
    for row in old["rows"]:
        del row["processor"]
    assert fit_exchange([parse_sweep(old)]).busy_cores is None


# Buckets.


def test_gradients_are_bundled_as_ddp_does():
    found = make_buckets([Bucket(MB / 2, n / 60) for n in range(1, 61)])
    assert [each.size / MB for each in found] == [1, 25, 4]
    assert [each.ready for each in found] == pytest.approx([2 / 60, 52 / 60, 1])
    assert [each.size / MB for each in make_buckets([Bucket(3 * MB, 1.0)])] == [3]
    assert make_buckets([]) == ()


def test_gradients_of_which_nothing_is_known_come_evenly():
    found = even_buckets(51 * MB)
    assert [each.size / MB for each in found] == [1, 25, 25]
    assert [each.ready for each in found] == pytest.approx([1 / 51, 26 / 51, 1])


# From records.


def recorded(folder, arrivals=None, held=None, **changes):
    """Play a run on the fake machine, and add what a real one would have recorded."""
    record = play_run(a_run(**{"steps": 60, "batch": 32} | changes), folder)
    lines = {"arrivals": arrivals, "held": held}
    ranks = [replace(rank, lines=(*rank.lines, lines)) for rank in record.ranks]
    return replace(record, ranks=tuple(ranks))


def test_the_fake_machines_law_is_found_from_one_device_and_its_links(tmp_path):
    law = {"latency": 0.0, "wait": 0.003}
    seen = load_inputs(recorded(tmp_path, arrivals=[[100, 1.0]], options=law))
    assert not seen.notes and seen.spread.slowest(64) == pytest.approx(1)
    truth = Law.of(law)
    links = Link(0.0, 100 / truth.ring), Link(0.0, 100 / truth.network)
    machine = Machine(exchange=Network(*links, "hierarchical"), spread=seen.spread)
    places = [Topology.parse(each) for each in ("1x1", "1x2", "1x8", "2x8", "2048x8")]
    for found in simulate(seen.work, places, machine):
        assert found.step == pytest.approx(truth.step(32, found.topology))
        assert found.throughput == pytest.approx(32 * found.topology.world / found.step)


@pytest.mark.parametrize("topology", ["1x1", "1x4"])
def test_jitter_is_spread_whether_seen_on_one_rank_or_several(tmp_path, topology):
    law = {"latency": 0.0, "ring": 0.0, "jitter": 0.1, "host": 0.0}
    many = {"steps": 400, "options": law}
    seen = load_inputs(recorded(tmp_path, arrivals=[[1, 1.0]], topology=topology, **many))
    machine = Machine(exchange=Network(Link(0.0, 1e30)), spread=seen.spread)
    (found,) = simulate(seen.work, [Topology(1, 8)], machine)
    played = recorded(tmp_path, topology="1x8", **many)
    assert found.step == pytest.approx(played.ranks[0].steps.seconds.mean(), rel=0.02)


def test_copies_tell_how_long_a_step_takes_beside_others(tmp_path):
    copies = [recorded(tmp_path / str(n), options={"host": n / 100}) for n in (1, 2, 3)]
    step, spread = concurrent_steps(copies)
    assert step == pytest.approx(0.032 + 0.02)
    assert sorted(set(np.round(spread.ratios, 6))) == pytest.approx(
        [0.042 / 0.052, 1.0, 0.062 / 0.052], rel=1e-3
    )


def test_a_record_of_several_ranks_says_that_they_disturbed_each_other(tmp_path):
    (note,) = load_inputs(recorded(tmp_path, arrivals=[[1, 1.0]], topology="1x2")).notes
    assert describe_note(note).startswith("computation was measured on 2 ranks")


def test_what_was_not_recorded_is_assumed_and_said(tmp_path):
    even = load_inputs(recorded(tmp_path, held={"gradients": 51 * MB}))
    assert len(even.work.buckets) == 3 and "an even pace is assumed" in describe_note(even.notes[0])
    nothing = load_inputs(recorded(tmp_path / "more"))
    assert nothing.work.buckets == ()
    assert describe_note(nothing.notes[0]).endswith("no exchange is simulated")


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [1, 2]),
        ({"bucket_mb": 0.5}, [0.5] * 6),
        ({"first_bucket_mb": 2}, [2, 1]),
        ({"compression": "fp16"}, [0.5, 1]),
    ],
)
def test_buckets_are_those_of_the_runs_options(tmp_path, options, sizes):
    arrivals = [[MB / 2, n / 6] for n in range(1, 7)]
    record = recorded(tmp_path, arrivals=arrivals)
    changed = replace(record, spec=replace(record.spec, options=options))
    assert [each.size / MB for each in load_inputs(changed).work.buckets] == sizes


def test_steps_without_phases_are_refused(tmp_path):
    record = recorded(tmp_path)
    bare = [replace(rank, steps=replace(rank.steps, phases={})) for rank in record.ranks]
    with pytest.raises(NotEnoughData, match="does not record forward and backward separately"):
        load_inputs(replace(record, ranks=tuple(bare)))


def test_the_example_of_the_card_runs(capsys):
    card = DOCS / "metrics/simulated-step.md"
    (example,) = re.findall(r"^```python\n(.*?)^```$", card.read_text(), re.M | re.S)
    exec(compile(example, card.name, "exec"), {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1x8", "2048x8"]


# Nonsense.


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Link(-1.0, 1.0), "a latency is 0 or more seconds, got -1.0"),
        (lambda: Link(math.nan, 1.0), "a latency is 0 or more seconds, got nan"),
        (lambda: Link(0.0, 0.0), "bandwidth must be a number above 0, got 0.0"),
        (lambda: Network(NEAR, None, "rings"), "algorithm must be one of ring, .*, got 'rings'"),
        (lambda: Contention(compute=0.5), "contention must be 1 or more, got compute = 0.5"),
        (lambda: Cores(0, 1.0), "a node has at least one core"),
        (lambda: Spread(()), "a spread is one or more ratios above 0"),
        (lambda: work(forward=math.nan), "forward must be 0 or more seconds, got nan"),
        (lambda: Work(forward=0.0, backward=0.0), "a step must take more than 0 seconds"),
        (lambda: work((1, 0.5), (1, 0.4)), r"in order, .* got \[0.5, 0.4\]"),
        (lambda: work((1, 1.5)), r"from 0 to 1 of the backward, got \[1.5\]"),
        (lambda: work((0, 1.0)), "bucket size must be a number above 0, got 0"),
        (lambda: work(samples=0), "samples must be a number above 0"),
        (lambda: Machine(exchange=HERE, sharing={2: 0.0}), "a factor above 0, got 2: 0.0"),
        (lambda: one(work(), Topology(1, 3), Pipeline(2)), "2 stages do not divide 3 devices"),
        (lambda: Pipeline(0), "stages must be a whole number from 1"),
        (lambda: parse_sweep({"rows": []}), "this is no sweep of collectives: it has no 'hosts'"),
        (
            lambda: parse_sweep(stored(HERE, PAIR) | {"ranks": 3}),
            "3 ranks do not fill 1 nodes with 2 each",
        ),
    ],
)
def test_nonsense_is_refused_in_a_sentence(make, problem):
    with pytest.raises(SpecError, match=problem) as refused:
        make()
    assert refused.value.hint


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: one(work((1, 1.0)), Topology(2, 2)),
            "2x2 leaves the node, and no link between nodes is known",
        ),
        (lambda: fit_exchange([]), "no collectives were timed"),
        (
            lambda: fit_link(parse_sweep(stored(HERE, PAIR, sizes=(4,)))),
            "needs two sizes of all-reduce, got 1",
        ),
        (
            lambda: fit_link(Sweep(PAIR, {"all-reduce": ((4, 2.0), (8, 1.0))})),
            "larger messages took no longer",
        ),
    ],
)
def test_what_is_not_known_is_asked_for(make, problem):
    with pytest.raises(NotEnoughData, match=problem) as refused:
        make()
    assert refused.value.hint
