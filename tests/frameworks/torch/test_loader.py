"""One stream of batches for training and validation, whatever was asked for before."""

from dataclasses import replace

import pytest
import torch

from builders import a_run
from image_files import image_folder
from scalewise.errors import Broken
from scalewise.frameworks.data.make_data import Recipe, make_data_set
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.sampler import Shards, count_steps, validation_batches
from scalewise.frameworks.torch.input.data_sets import load
from scalewise.frameworks.torch.input.loader import BatchLoader, Pass, PassSampler

CPU = torch.device("cpu")
DATA = load(Source.of("synthetic:50x4x4"))


def a_feed(data=DATA, **said):
    """Return a feed over 50 samples, the order behind it, and how often it began anew."""
    spec = a_run(framework="torch", workload="mlp", **{"batch": 8, "epochs": 3, **said})
    shards = Shards(len(data.train), spec, 0)
    total = count_steps(spec, len(data.train)) * (spec.epochs or 1)
    _, batches = validation_batches(len(data.validation), spec.batch, 0, spec.replicas)
    order = PassSampler(shards, batches, spec, total)
    feed = BatchLoader(data, order, spec, CPU)
    began = []
    restart = feed.restart
    feed.restart = lambda first: (began.append(first), restart(first))[1]
    return feed, order, began


def taken(feed, order, one):
    """Return the labels of a whole pass."""
    feed.begin(one)
    return [feed.next_batch()[1].tolist() for _ in range(order.batch_count(one))]


def test_whoever_asks_in_the_usual_order_never_begins_anew():
    feed, order, began = a_feed()
    feed.restart(Pass(0))
    for epoch in range(3):
        assert len(taken(feed, order, Pass(epoch))) == 6
        assert len(taken(feed, order, Pass(epoch, validation=True))) == 2
    assert began == [Pass(0)]


class Torn:
    """Samples in a file that somebody has cut."""

    def __len__(self):
        return 50

    def batch(self, indices, epoch):
        raise Broken("x.bin is cut", hint="make it again", path="x.bin")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_cannot_be_read_is_told_in_one_sentence_by_a_worker_too(workers):
    feed, _, _ = a_feed(replace(DATA, train=Torn()), workers=workers)
    feed.begin(Pass(0))
    with pytest.raises(Broken) as told:
        feed.next_batch()
    assert (str(told.value), told.value.hint) == ("x.bin is cut", "make it again")
    assert told.value.path == "x.bin"


def test_a_number_of_steps_passes_several_times_and_is_checked_at_its_end():
    feed, order, began = a_feed(epochs=None, steps=14)
    sizes = [order.batch_count(one) for one in order.passes()]
    assert list(order.passes()) == [Pass(0), Pass(1), Pass(2), Pass(2, validation=True)]
    assert sizes == [6, 6, 2, 2]
    for one in list(order.passes()):
        taken(feed, order, one)
    assert began == [Pass(0)]


def test_a_pass_is_the_same_wherever_one_begins():
    feed, order, _ = a_feed()
    whole = taken(feed, order, Pass(1))
    assert taken(feed, order, Pass(1, first_step=4)) == whole[4:]
    assert taken(feed, order, Pass(1)) == whole


def test_validation_in_the_midst_of_a_pass_takes_nothing_from_it():
    feed, order, began = a_feed()
    feed.begin(Pass(0))
    first = [feed.next_batch()[1].tolist() for _ in range(2)]
    shown = taken(feed, order, Pass(0, validation=True))
    assert first + taken(feed, order, Pass(0, first_step=2)) == taken(feed, order, Pass(0))
    assert shown == taken(feed, order, Pass(2, validation=True))
    assert len(began) > 1


def test_a_pass_that_is_done_is_followed_by_what_validates():
    feed, order, began = a_feed()
    feed.begin(Pass(0, first_step=6))
    assert order.batch_count(Pass(0, first_step=6)) == 0
    assert len(taken(feed, order, Pass(0, validation=True))) == 2
    assert began == [Pass(0, first_step=6)]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_change_nothing(workers):
    feed, order, _ = a_feed(workers=workers, accumulate=2, batch=4)
    inline, same, _ = a_feed(accumulate=2, batch=4)
    for one in (Pass(0), Pass(0, validation=True), Pass(1)):
        assert taken(feed, order, one) == taken(inline, same, one)
    feed.close()


def test_the_chance_of_the_training_is_left_alone():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    feed, order, _ = a_feed(workers=1)
    taken(feed, order, Pass(0))
    feed.close()
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("augment", ["none", "flip"])
def test_packed_images_and_their_folder_give_the_same_batches(augment, tmp_path):
    image_folder(tmp_path / "files", train=4)
    make_data_set(Recipe(tmp_path / "packed", 16, source=tmp_path / "files", packed=True), print, 1)
    batches = []
    for name in ("files", "packed"):
        said = {"data": str(tmp_path / name), "edge": 16, "augment": augment, "seed": 3}
        spec = a_run(framework="torch", workload="mlp", **said)
        train = load(Source.of_run(spec), spec).train
        batches.append(train.batch(torch.arange(len(train)).flip(0), epoch=1))
    assert all(map(torch.equal, *batches))
    plain, _ = load(Source.of(said["data"])).train.batch(torch.arange(len(train)).flip(0), epoch=1)
    assert torch.equal(batches[0][0], plain) == (augment == "none")
