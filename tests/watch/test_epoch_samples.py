"""The samples of an epoch, as a program's loader knows them."""

import pytest
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from scalewise.watch.torch.facts import _epoch_samples

DATA = list(range(100))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DATA)

    def __len__(self):
        raise AssertionError("asked for the length of a stream")


def by_batches(**options):
    return BatchSampler(SequentialSampler(DATA), **options)


@pytest.mark.parametrize(
    ("loader", "samples"),
    [
        (DataLoader(DATA, batch_size=32), 100),
        (DataLoader(DATA, batch_size=32, drop_last=True), 96),
        (DataLoader(DATA, batch_size=32, sampler=DistributedSampler(DATA, 2, 0)), 50),
        (DataLoader(DATA, batch_sampler=by_batches(batch_size=8, drop_last=True)), 96),
        (DataLoader(DATA, batch_size=None), None),
        (DataLoader(DATA, batch_sampler=[[0, 1], [2]]), None),
        (DataLoader(Stream(), batch_size=8), None),
    ],
)
def test_an_epoch_has_the_samples_that_its_loader_gives(loader, samples):
    assert _epoch_samples(loader) == samples
