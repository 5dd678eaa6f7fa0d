"""From events to steps: what the watcher makes of a loop's words, without PyTorch's hooks."""

import random
import warnings
from itertools import pairwise

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from scalewise.watch.torch import event_buffer, private_api
from scalewise.watch.torch.discovery import samples_and_tensor
from scalewise.watch.torch.event_buffer import EventBuffer
from scalewise.watch.torch.loader_passes import loader_key

FETCH = [("fetch", "train"), ("fetched", 16)]
TRAIN = [("forward", 16, True), ("forwarded",), ("backward",), ("end",)]
STEP = [("begin", "optimizer"), ("stepped", "sgd")]
CHECK = [("fetch", "test"), ("fetched", 50), ("forward", 50, False), ("forwarded",)]
SAVE = [("saving",), ("saved",)]


class Notebook:
    """A watcher that keeps its rows and spans."""

    wall_offset = 1000.0
    explicit = False

    def __init__(self) -> None:
        self.rows, self.spans = [], []

    def add_steps(self, rows) -> None:
        self.rows += rows

    def span(self, name, start, end, **facts) -> None:
        self.spans.append((name, start, end))

    def record_build(self, moment) -> None:
        self.spans.append(("build", 0.0, moment))

    def wall(self, moment) -> float:
        return moment

    def named(self, name) -> int:
        return sum(span[0] == name for span in self.spans)

    @property
    def samples(self) -> list[int]:
        return [row[0] for row in self.rows]


@pytest.fixture
def tell(monkeypatch):
    """Add events to a buffer, a second apart, and return the watcher with its rows and spans."""

    def play(*words, usual=True, room=0, marked=False, follow=None) -> Notebook:
        clock = iter(range(1, 100_000))
        monkeypatch.setattr(event_buffer, "FLUSH_SECONDS", 3600.0)
        watcher = Notebook()
        buffer = EventBuffer(watcher)
        buffer.now = lambda: float(next(clock))
        buffer.max_steps = room
        if marked:
            marks = iter(range(1000, 100_000))
            buffer.use_device_clock(lambda: next(marks))
        if follow is not None:
            buffer.follow(follow)
        kept = 0
        for word in [each for group in words for each in group]:
            buffer.add(word)
            if word[0] == "stepped":
                kept += 1
                if kept > buffer.max_steps:
                    buffer.process()
                    kept = 0
                if not usual:
                    buffer._expected = None
        buffer.add(("finish",))
        buffer.process()
        return watcher

    return play


def seconds(row) -> dict[str, float]:
    """Return a row's seconds by phase, pauses left out."""
    found: dict[str, float] = {}
    for name, start, end in zip(row[1], row[2], row[2][1:]):
        found[name] = found.get(name, 0.0) + end - start
    return found


def test_a_plain_loop_has_a_row_per_step_and_every_second_has_a_name(tell):
    watcher = tell(*[FETCH + TRAIN + STEP] * 5)
    assert watcher.samples == [16] * 5
    assert seconds(watcher.rows[-1]) == {
        "other": 2, "input": 1, "forward": 2, "backward": 1, "optimizer": 2,
    }  # fmt: skip
    assert watcher.named("train") == 1 and watcher.named("shutdown") == 1


def test_a_replica_inside_another_model_exchanges_too(tell):
    inner = [("forward", 16, True, True), ("forwarded",)]
    model = [("forward", 16, True, False), *inner, ("forwarded",)]
    watcher = tell(*[FETCH + model + [("backward",), ("split", "sync"), ("end",)] + STEP] * 4)
    assert watcher.samples == [16] * 4
    assert seconds(watcher.rows[-1])["sync"] == 1


def test_micro_batches_are_one_step_and_their_samples_add_up(tell):
    watcher = tell(*[(FETCH + TRAIN) * 4 + STEP] * 3)
    assert watcher.samples == [64] * 3


def test_batches_fetched_ahead_count_where_they_are_trained_on(tell):
    ahead = FETCH + [*FETCH, *TRAIN, *STEP] * 4 + TRAIN + STEP
    assert tell(ahead).samples == [16] * 5


def test_a_batch_that_is_used_again_counts_once(tell):
    critic = [*TRAIN, ("begin", "optimizer"), ("stepped", "critic")]
    maker = [*TRAIN, ("begin", "optimizer"), ("stepped", "maker")]
    assert tell(*[FETCH + TRAIN + critic + maker] * 6).samples == [16] * 6


def test_a_closure_counts_its_batch_once(tell):
    closure = [("begin", "optimizer"), *TRAIN * 4, ("stepped", "lbfgs")]
    assert tell(*[closure] * 4).samples == [16] * 4


def test_without_a_loader_the_models_input_tells_the_batch(tell):
    assert tell(*[TRAIN + STEP] * 4).samples == [16] * 4


def test_without_a_model_the_loader_tells_the_batch(tell):
    bare = [("backward",), ("end",)]
    watcher = tell(*[FETCH + bare + STEP] * 4)
    assert watcher.samples == [16] * 4
    assert seconds(watcher.rows[-1])["forward"] == 1


def test_validation_is_a_pause_and_no_part_of_a_step(tell):
    epoch = [FETCH + TRAIN + STEP] * 5
    watcher = tell(*epoch, CHECK * 30, *epoch, CHECK * 30)
    assert watcher.samples == [16] * 10
    assert watcher.named("validate") == 2 and watcher.named("train") == 2
    assert seconds(watcher.rows[5]) == {**seconds(watcher.rows[4]), "other": 1}


def test_validation_between_two_batches_of_a_step_is_a_pause_too(tell):
    plain = (FETCH + TRAIN) * 2 + STEP
    halfway = FETCH + TRAIN + CHECK * 30 + FETCH + TRAIN + STEP
    watcher = tell(plain, plain, halfway, plain, halfway, plain)
    assert watcher.samples == [32] * 6
    assert watcher.named("validate") == 2
    for row in (2, 4):
        rest = {k: v for k, v in seconds(watcher.rows[row]).items() if k != "validate"}
        assert rest == {**seconds(watcher.rows[3]), "other": 3}
    assert [name for name, *_ in watcher.spans[1:-1]] == ["train", "validate"] * 2 + ["train"]
    assert all(a[2] == b[1] for a, b in pairwise(watcher.spans[1:])), "one after the other"


def test_such_a_validation_is_seen_where_the_next_batch_was_fetched_ahead(tell):
    inside = [*FETCH, ("begin", "optimizer"), *TRAIN, ("stepped", "sgd")]
    plain = FETCH + TRAIN + inside
    halfway = FETCH + TRAIN + FETCH + CHECK * 9 + inside[2:]
    watcher = tell(FETCH, plain, plain, halfway, plain)
    assert watcher.named("validate") == 1 and watcher.samples[1:] == [32] * 3


def test_validation_that_no_model_is_seen_in_is_known_by_its_loader(tell):
    epoch = [FETCH + TRAIN + STEP] * 5
    unseen = [("fetch", "test"), ("fetched", 50)] * 20
    watcher = tell(*epoch, unseen, *epoch)
    assert watcher.samples == [16] * 10 and watcher.named("validate") == 1


def test_a_teacher_between_batch_and_training_belongs_to_the_step(tell):
    teacher = [("forward", 16, False), ("forwarded",)]
    watcher = tell(*[FETCH + teacher + TRAIN + STEP] * 5)
    assert watcher.samples == [16] * 5 and watcher.named("validate") == 0
    assert seconds(watcher.rows[-1])["forward"] == 3


def test_the_files_of_one_checkpoint_are_one_pause(tell):
    watcher = tell(*[FETCH + TRAIN + STEP] * 3, SAVE * 5, *[FETCH + TRAIN + STEP] * 3, SAVE)
    assert watcher.named("checkpoint") == 2 and watcher.samples == [16] * 6


def test_a_checkpoint_after_steps_without_a_model_is_recorded_before_the_next(tell):
    watcher = tell(*[STEP] * 3, SAVE, *[STEP] * 3)
    assert watcher.named("checkpoint") == 1 and len(watcher.rows) == 6
    assert seconds(watcher.rows[3]) == {"other": 1, "optimizer": 1}


@pytest.mark.parametrize("seed", range(20))
def test_checkpoints_in_any_order_of_events_have_their_time(seed, tell):
    chance = random.Random(seed)
    sync, closing = [("begin", "sync"), ("end",)], [("saving",), *STEP, ("saved",)]
    parts = [FETCH, TRAIN, STEP, CHECK, SAVE, sync, closing, [("stepped", "adam")]]
    for _ in range(50):
        watcher = tell(sync, *chance.choices(parts, k=chance.randint(2, 9)))
        assert all(start <= end for _, start, end in watcher.spans)
        assert all(len(marks) == len(names) + 1 for _, names, marks, _ in watcher.rows)


def test_communication_after_the_last_gradient_is_apart(tell):
    split = [("forward", 16, True, True), *TRAIN[1:3], ("split", "sync"), ("end",)]
    watcher = tell(*[FETCH + split + STEP] * 4)
    assert seconds(watcher.rows[-1])["sync"] == 1 and seconds(watcher.rows[-1])["optimizer"] == 2


def test_what_a_loader_gave_counts_and_not_what_was_added_to_it(tell):
    doubled = [("forward", 32, True), *TRAIN[1:]]
    assert tell(*[FETCH + doubled + STEP] * 4).samples == [16] * 4
    assert tell(*[FETCH * 2 + doubled + STEP] * 4).samples == [32] * 4


def test_an_optimizer_that_does_not_tell_its_beginning_begins_after_backward(tell):
    watcher = tell(*[FETCH + TRAIN + STEP[1:]] * 4)
    assert seconds(watcher.rows[-1])["optimizer"] == 1
    assert sum(seconds(watcher.rows[-1]).values()) == 7


def test_a_gradient_that_is_not_exchanged_ends_nothing(tell):
    alone = [*TRAIN[:3], ("split", "sync"), ("end",)]
    watcher = tell(*[FETCH + alone + STEP] * 4)
    assert "sync" not in seconds(watcher.rows[-1]) and seconds(watcher.rows[-1])["backward"] == 2


def test_a_model_inside_another_and_one_called_again_in_backward_are_parts_of_it(tell):
    inner = [("forward", 4, True), ("forwarded",)]
    train = [TRAIN[0], *inner, TRAIN[1], TRAIN[2], *inner, TRAIN[3]]
    watcher = tell(*[FETCH + train + STEP] * 4)
    assert watcher.samples == [16] * 4
    assert seconds(watcher.rows[-1])["forward"] == 4 and seconds(watcher.rows[-1])["backward"] == 3


def test_a_step_like_the_one_before_is_taken_as_it_would_be_understood(tell):
    chance = random.Random(7)
    parts = [FETCH + TRAIN + STEP, FETCH * 2 + TRAIN * 2 + STEP, CHECK * 3, SAVE, TRAIN + STEP]
    words = [part for _ in range(40) for part in [chance.choice(parts)] * chance.randint(1, 4)]
    quick, slow = tell(*words), tell(*words, usual=False)
    assert quick.rows == slow.rows
    assert quick.spans == slow.spans
    kept_back = tell(*words, room=9)
    assert kept_back.rows == slow.rows and kept_back.spans == slow.spans
    assert len(quick.rows) > 50


@pytest.mark.parametrize("room", [0, 3])
def test_the_marks_of_a_device_go_with_their_words(room, tell):
    words = [FETCH + TRAIN + STEP] * 5 + [CHECK] * 2 + [FETCH + TRAIN + STEP] * 5
    plain, marked = tell(*words, room=room), tell(*words, room=room, marked=True)
    assert [seconds(row) for row in marked.rows] == [seconds(row) for row in plain.rows]
    assert [row[2][-1] for row in marked.rows] != [row[2][-1] for row in plain.rows]


def test_who_follows_is_told_at_once_what_goes_on(tell):
    followed = []
    watcher = tell(*[FETCH + TRAIN + STEP] * 3, room=9, marked=True, follow=followed.append)
    assert followed[:8] == ["input", "", "forward", "", "backward", "", "optimizer", ""]
    assert len(followed) == 3 * 8 and len(watcher.rows) == 3


def test_fetches_are_told_where_the_private_iterator_is_gone(monkeypatch):
    from torch.utils import data

    monkeypatch.delattr(data.dataloader, "_BaseDataLoaderIter")
    told = []

    def around(fetch):
        return lambda iterator: (
            told.append(getattr(iterator, private_api.LOADER)) or fetch(iterator)
        )

    ((owner, name, _, watched),) = private_api.wrap_fetch(around)
    monkeypatch.setattr(owner, name, watched)
    loader = data.DataLoader([1, 2, 3], batch_size=None)
    assert list(loader) == [1, 2, 3] and told == [loader_key(loader)] * 4


def test_a_loaders_warnings_name_the_same_place_with_and_without_watching():
    from torch.utils import data

    loader = data.DataLoader(torch.arange(3), pin_memory=True, batch_size=None)

    def warned():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert [int(each) for each in loader] == [0, 1, 2]
        return [(each.filename, each.lineno, str(each.message)) for each in found]

    plain, told = warned(), []

    def around(fetch):
        return lambda iterator: (
            told.append(getattr(iterator, private_api.LOADER)) or fetch(iterator)
        )

    patches = private_api.wrap_fetch(around)
    for owner, name, _, watched in patches:
        setattr(owner, name, watched)
    try:
        assert warned() == plain
    finally:
        for owner, name, original, _ in patches:
            setattr(owner, name, original)
    assert told == [loader_key(loader)] * 4
    assert warned() == plain and len(told) == 4


ROWS = torch.zeros(6, 2)
IMAGES = [torch.zeros(3, 9, 9), torch.zeros(3, 7, 7), torch.zeros(3, 8, 8), torch.zeros(3, 8, 9)]


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (ROWS, 6),
        ([ROWS, torch.zeros(6)], 6),
        ({"x": ROWS, "y": 1}, 6),
        ([[ROWS, ROWS], torch.zeros(6)], 6),
        (([ROWS, ROWS], [torch.zeros(6), torch.zeros(6)]), 6),
        ((IMAGES, [{}, {}, {}, {}]), 4),
        ((IMAGES, torch.zeros(4)), 4),
        ((IMAGES,), None),
        ([torch.zeros(5), torch.zeros(7), torch.zeros(9)], 3),
        ((torch.zeros(35, 20), torch.zeros(700)), 35),
        ([{"image": torch.zeros(3, 9, 9)}, {"image": torch.zeros(3, 7, 9)}], 2),
    ],
)
def test_samples_are_counted_however_a_batch_is_packed(batch, samples):
    assert samples_and_tensor(batch)[0] == samples


def tokens(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int64)


class Graphs:
    """A batch as PyTorch Geometric makes it: the nodes of all graphs in a row."""

    def __init__(self, nodes: int, answers: int, **told: int) -> None:
        self.x, self.edge_index, self.y = torch.zeros(nodes, 7), torch.zeros(2, 90), tokens(answers)
        self.__dict__.update(told)


class Unwilling(Graphs):
    @property
    def num_graphs(self) -> int:
        raise ValueError("can not infer the number of graphs")


@pytest.mark.parametrize(
    ("batch", "drawn", "samples"),
    [
        ((tokens(64), tokens(500), tokens(64)), 64, 64),
        ([tokens(64), tokens(512), tokens(64)], 64, 64),
        ((tokens(64), tokens(500), tokens(64)), None, 64),
        ((tokens(512), tokens(64)), 64, 64),
        (((tokens(500), tokens(64)), tokens(64)), 64, 64),
        ({"text": tokens(500), "label": tokens(64)}, 64, 64),
        ({"text": tokens(500), "label": tokens(64)}, None, None),
        (Graphs(640, 32, num_graphs=32), None, 32),
        (Graphs(641, 32), 32, 32),
        (Graphs(640, 32), 32, 32),
        ((torch.zeros(640, 7), torch.zeros(2, 90), tokens(640), tokens(32)), 32, 32),
        (Graphs(641, 32), None, None),
        (Unwilling(641, 32), 32, 32),
        (Unwilling(641, 32), None, None),
        (object(), 32, None),
    ],
)
def test_a_batch_whose_samples_lie_in_a_row_is_as_many_as_were_drawn(batch, drawn, samples):
    assert samples_and_tensor(batch, drawn)[0] == samples


@pytest.mark.parametrize(
    ("batch", "drawn", "samples"),
    [
        ((torch.zeros(8, 3, 9, 9), tokens(8)), 4, 8),  # Two views of each.
        ((torch.zeros(8, 3, 9, 9), tokens(4)), 4, 8),
        ((torch.zeros(2, 512), tokens(30)), 30, 2),  # Thirty texts packed into two rows.
        ((torch.zeros(64, 5), tokens(64), tokens(1)), 1, 64),  # A sample that is a batch.
        ((IMAGES, [{}, {}, {}, {}]), 3, 4),
        ([tokens(5), tokens(7), tokens(7), tokens(7)], 4, 4),
        ((IMAGES,), 4, None),
        (torch.zeros(35, 20), 20, 35),
    ],
)
def test_what_is_made_of_the_samples_that_were_drawn_counts_as_it_is(batch, drawn, samples):
    assert samples_and_tensor(batch, drawn)[0] == samples


class Stream(IterableDataset):
    def __iter__(self):
        yield from range(10)


@pytest.mark.parametrize(
    ("loader", "drawn"),
    [
        (lambda: DataLoader(range(10), batch_size=4), [4, 4, 2]),
        (lambda: DataLoader(range(10), batch_size=4, drop_last=True), [4, 4]),
        (lambda: DataLoader(range(10), batch_size=5), [5, 5]),
        (lambda: DataLoader(Stream(), batch_size=4), [4, 4, 4]),
        (lambda: DataLoader(range(3), batch_size=None), [None] * 3),
        (lambda: DataLoader(range(6), batch_sampler=[[0, 1], [2], [3, 4, 5]]), [None] * 3),
        (lambda: [1, 2], [None] * 2),
    ],
)
def test_a_loader_says_how_many_samples_it_drew(loader, drawn):
    iterator = iter(loader())
    assert [private_api.drawn_samples(iterator) for _ in iterator] == drawn


@pytest.mark.parametrize("optimizers", [("sgd",), ("sgd", "adam")])
def test_a_step_without_anything_to_learn_from_makes_room_for_a_checkpoint(tell, optimizers):
    steps = [word for each in optimizers for word in (("begin", "optimizer"), ("stepped", each))]
    once = [*FETCH, *TRAIN, *steps]
    watcher = tell(steps, once * 3)
    assert watcher.samples == [16, 16, 16]
    assert watcher.named("checkpoint") == 1
    assert tell(steps).samples == []


def stage(optimizer, loader="train", steps=5):
    fetch = [("fetch", loader), ("fetched", 16)]
    return [*fetch, *TRAIN, ("begin", "optimizer"), ("stepped", optimizer)] * steps


@pytest.mark.parametrize("steps", [1, 5, 20])
@pytest.mark.parametrize("gone", [True, False])
def test_another_training_after_the_first_has_all_its_steps(tell, gone, steps):
    """With an optimizer of its own, and often with a loader of its own."""
    words = stage("sgd") + CHECK * 9
    for number in range(3):
        words += [("created", f"sgd {number}")]
        if gone:
            words += [("deleted", f"sgd {number - 1}" if number else "sgd")]
        words += (stage(f"sgd {number}", f"train {number}", steps) + CHECK * 9) * 2
    watcher = tell(words)
    assert watcher.samples == [16] * (5 + 6 * steps)
    assert watcher.named("validate") == 7
    assert all(seconds(row)["input"] == 1 for row in watcher.rows)


def test_an_optimizer_inside_the_loop_of_another_ends_no_step(tell):
    """Such as that of an inner loop, made anew in each step."""
    outer = [*FETCH, *TRAIN, ("begin", "optimizer"), ("stepped", "outer")]
    inner = [("created", "inner")] + [*TRAIN, ("begin", "optimizer"), ("stepped", "inner")] * 5
    assert tell(outer * 3, (FETCH + inner + TRAIN + outer[-2:]) * 6).samples == [16] * 9


def test_a_new_loader_feeds_training_where_its_batch_is_trained_on_at_once(tell):
    epochs = [stage("sgd", f"train {number}") + CHECK * 20 for number in range(4)]
    watcher = tell(*epochs)
    assert watcher.samples == [16] * 20 and watcher.named("validate") == 4
    assert all(seconds(row)["input"] == 1 for row in watcher.rows)


def test_accumulation_goes_on_with_a_new_loader(tell):
    some = [stage("sgd", "a", 1), [("fetch", "a"), ("fetched", 16), *TRAIN]]
    watcher = tell(*some, stage("sgd", "b", 3))
    assert watcher.samples == [16, 32, 16, 16] and watcher.named("validate") == 0


def test_parts_of_one_batch_add_up_to_it(tell):
    part = [("forward", 4, True), *TRAIN[1:]]
    assert tell(*[FETCH + part * 4 + STEP] * 4).samples == [16] * 4
    assert tell(*[FETCH + part * 5 + STEP] * 4).samples == [16] * 4
    assert tell(*[FETCH + part * 3 + STEP] * 4).samples == [12] * 4


def test_without_a_loader_networks_that_see_the_same_count_once(tell):
    actor, critic = (
        [("forward", 16, True, False, who), ("forwarded",)] for who in ("actor", "critic")
    )
    back = [("backward",), ("end",)]
    assert tell(*[actor + critic + back + STEP] * 4).samples == [16] * 4
    twice = [*critic, *back, ("begin", "optimizer"), ("stepped", "q"), *critic, *actor, *back]
    assert tell(*[twice + STEP] * 6).samples == [16] * 6


def test_a_validation_without_no_grad_is_known_by_a_model_that_evaluates(tell):
    check = [("fetch", "test"), ("fetched", 50), ("forward_eval", 50, False, 1), ("forwarded",)]
    epoch = [FETCH + TRAIN + STEP] * 5
    watcher = tell(*epoch, check * 3, [("fetch", "test"), ("exhausted",)], *epoch)
    assert watcher.samples == [16] * 10 and watcher.named("validate") == 1
    full = [("forward_eval", 16, False, 1), ("forwarded",)]
    watcher = tell(*[TRAIN + STEP + full] * 5)
    assert watcher.samples == [16] * 5 and watcher.named("validate") == 5


@pytest.mark.parametrize("fetch", [FETCH, []])
def test_a_model_that_evaluates_and_learns_is_trained(tell, fetch):
    train = [("forward_eval", 16, False, 1), *TRAIN[1:]]
    watcher = tell(*[fetch + train + STEP] * 5)
    assert watcher.samples == [16] * 5 and watcher.named("validate") == 0
    assert all(seconds(row)["forward"] == 2 for row in watcher.rows)
    closure = [("begin", "optimizer"), *train * 4, ("stepped", "lbfgs")]
    assert tell(*[closure] * 4).samples == [16] * 4


def test_several_teachers_belong_to_the_step_too(tell):
    teacher = [("forward", 16, False), ("forwarded",)]
    attack = [("forward_eval", 16, False, 1), ("forwarded",)]
    watcher = tell(*[FETCH + teacher * 4 + attack * 10 + TRAIN + STEP] * 5, CHECK * 3)
    assert watcher.samples == [16] * 5 and watcher.named("validate") == 1


def test_a_batch_that_nobody_looked_into_is_no_larger_than_those_before(tell):
    unseen = [("fetch", "train"), ("fetched", None)]
    doubled = [("forward", 32, True), *TRAIN[1:]]
    assert tell(*[FETCH + TRAIN + STEP] * 3, *[unseen + doubled + STEP] * 3).samples == [16] * 6


def test_a_batch_that_was_only_looked_at_belongs_to_the_building(tell):
    peek = [("fetch", "train"), ("exhausted",), *FETCH]
    watcher = tell(peek, SAVE, peek[:2], *[FETCH + TRAIN + STEP] * 3)
    assert watcher.samples == [16] * 3
    (built,) = [end for name, _, end in watcher.spans if name == "build"]
    (saved,) = [start for name, start, _ in watcher.spans if name == "checkpoint"]
    assert built == saved
    watcher = tell(peek, peek[:2], *[FETCH + TRAIN + STEP] * 3)
    assert watcher.samples == [16] * 3
    assert len(watcher.rows[0][1]) == 1 + len(FETCH + TRAIN + STEP)


def test_steps_of_which_nothing_else_is_seen_are_steps(tell):
    assert tell(STEP * 3).samples == [0, 0, 0]
