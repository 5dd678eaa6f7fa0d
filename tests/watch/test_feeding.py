"""Samples and phases of programs that feed their models in unusual ways.

Each program has its true samples in every step beside it, and one rank; all of them run in one
process after the other. A sample is what the loader's sampler draws; without a loader, a row.
"""

import pytest

from watch_many import watch_programs

pytestmark = pytest.mark.timeout(300)

PRELUDE = """
import itertools, queue, threading, time
from dataclasses import dataclass
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler
from torch.utils.data import TensorDataset
from torch.nn.utils.rnn import pack_sequence

def rows(samples, *size):
    return TensorDataset(torch.randn(samples, *(size or (8,))))

def loader(samples=160, batch=16, *size, **options):
    return DataLoader(rows(samples, *size), batch_size=batch, **options)

model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

class Thread(threading.Thread):
    '''Reads batches ahead in a thread, as a prefetching generator does.'''
    def __init__(self, batches):
        super().__init__(daemon=True)
        self.queue, self.batches = queue.Queue(2), batches
        self.start()
    def run(self):
        for batch in self.batches:
            self.queue.put(batch)
        self.queue.put(None)
    def __iter__(self):
        return iter(self.queue.get, None)
"""

FROM_LOADERS = {
    "inputs and labels in two mappings, one entry for each pass": (
        [1] * 12,
        """
class One(Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        return {"x": torch.randn(16, 8)}, {"y": torch.randn(16, 1)}
for _ in range(12):
    for inputs, labels in DataLoader(One(), batch_size=1):
        update(((model(inputs["x"]) - labels["y"]) ** 2).mean())
        model(inputs["x"])
""",
    ),
    "a sampler that gives a length that is too small": (
        [4] * 20,
        """
class Long(torch.utils.data.Sampler):
    def __iter__(self):
        return iter(range(40))
    def __len__(self):
        return 10
for epoch in range(2):
    for (x,) in DataLoader(rows(40), batch_size=4, sampler=Long()):
        update(model(x).sum())
""",
    ),
    "a batch sampler that repeats for ever, batches that do not show their size": (
        [16, 16, 16, 2] * 10,
        """
class Boxes(Dataset):
    def __len__(self):
        return 50
    def __getitem__(self, index):
        return torch.randn(8), torch.zeros(1 + index % 3, 6)
def collate(samples):
    images, boxes = zip(*samples)
    return torch.stack(images), torch.cat(boxes)
def for_ever(loader):
    batches = loader.batch_sampler
    class Repeated:
        def __iter__(self):
            while True:
                yield from batches
    object.__setattr__(loader, "batch_sampler", Repeated())
    return iter(loader)
endless = for_ever(DataLoader(Boxes(), batch_size=16, collate_fn=collate))
unread = iter(loader())
for step in range(40):
    images, boxes = next(endless)
    update(model(images).pow(2).mean() + 0 * boxes.sum())
""",
    ),
    "batches that become larger, by a batch sampler": (
        [4] * 12 + [9, 20, 4],
        """
sizes = [4] * 12 + [9, 20, 4]
starts = [sum(sizes[:number]) for number in range(len(sizes))]
batches = [list(range(start, start + size)) for start, size in zip(starts, sizes)]
for (x,) in DataLoader(rows(sum(sizes)), batch_sampler=batches):
    update(model(x).sum())
""",
    ),
    "a sampler that gives a wrong length": (
        [20] * 12,
        """
class Shuffled(torch.utils.data.Sampler):
    def __init__(self, size):
        self.size = size
    def __iter__(self):
        return iter(torch.randperm(self.size).tolist())
    def __len__(self):
        return 1
for task in range(12):
    (x,), (z,) = (
        next(iter(DataLoader(rows(size), batch_size=size, sampler=Shuffled(size))))
        for size in (5, 15)
    )
    update(model(x).sum() + model(z).sum())
""",
    ),
    "one call for each time step, and validation in between": (
        [16] * 18 + [12] + [16] * 18 + [12],
        """
lstm = nn.LSTM(8, 4)
optimizer = torch.optim.SGD(lstm.parameters(), lr=0.01)
def forward(x):
    state = (torch.zeros(1, len(x), 4), torch.zeros(1, len(x), 4))
    for step in x.permute(1, 0, 2):
        out, state = lstm(step.unsqueeze(0), state)
    return out.sum()
training, validation = loader(300, 16, 6, 8), loader(60, 30, 6, 8)
for epoch in range(2):
    for number, (x,) in enumerate(training):
        update(forward(x))
        if number == 0:
            with torch.no_grad():
                for (x,) in validation:
                    forward(x)
""",
    ),
    "groups of batches by a collate function": (
        [4] * 20,
        """
def collate(items):
    return [(torch.stack([x for (x,) in items[start:start + 4]]),) for start in (0, 4)]
for group in DataLoader(rows(80), batch_size=8, collate_fn=collate):
    for (x,) in group:
        update(model(x).sum())
""",
    ),
    "a loader of shard numbers outside": (
        [16, 16, 8] * 6,
        """
for epoch in range(2):
    for (shard,) in loader(3, 1):
        for (x,) in loader(40):
            update(model(x).sum())
""",
    ),
    "replay from a generator, and a new loader for each task": (
        [16] * 30,
        """
maker, old = nn.Linear(4, 8), model
makes = torch.optim.SGD(maker.parameters(), lr=0.01)
for task in range(3):
    for (x,) in loader(160):
        with torch.no_grad():
            replayed = maker(torch.randn(16, 4))
            target = old(replayed)
        update(model(x).sum() + (model(replayed) - target).pow(2).sum())
        makes.zero_grad()
        maker(torch.randn(16, 4)).sum().backward()
        makes.step()
    old = torch.nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
""",
    ),
    "gradient cache, batch by batch": (
        [160] * 8,
        """
batches = iter(loader(1280, 32))
for _ in range(8):
    cached = []
    with torch.no_grad():
        for _ in range(5):
            (x,) = next(batches)
            model(x)
            cached.append(x)
    optimizer.zero_grad()
    for x in cached:
        model(x).sum().backward()
    optimizer.step()
""",
    ),
    "gradient cache over a large batch": (
        [160] * 8,
        """
for (x,) in loader(1280, 160):
    with torch.no_grad():
        for part in x.split(16):
            model(part)
    optimizer.zero_grad()
    for part in x.split(16):
        model(part).sum().backward()
    optimizer.step()
""",
    ),
    "the training loader also evaluates": (
        [16] * 10 + [16] * 10,
        """
batches = loader()
for epoch in range(2):
    with torch.no_grad():
        for (x,) in batches:
            model(x)
    for (x,) in batches:
        with torch.no_grad():
            model(x)
        update(model(x).sum())
""",
    ),
    "edges before nodes": (
        [4] * 12,
        """
class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)
    def forward(self, edges, x):
        return self.net(x).index_add(0, edges[0], self.net(x)[edges[1]])

def collate(graphs):
    return torch.randint(0, 40, (2, 90)), torch.cat([x for x, in graphs]), torch.zeros(4)

model = Graph()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for edges, x, y in loader(48, 4, 10, 8, collate_fn=collate):
    update(model(edges, x).sum())
""",
    ),
    "truncated backpropagation through time": (
        [16, 0, 0, 0] + [4] * 44,
        """
net = nn.GRU(8, 8, batch_first=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for (x,) in loader(192, 16, 20, 8):
    state = None
    for part in x.split(5, dim=1):
        output, state = net(part, state)
        update(output.sum())
        state = state.detach()
""",
    ),
    "truncated backpropagation, time first": (
        [16, 0, 0, 0] + [4] * 44,
        """
net = nn.GRU(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for (x,) in loader(192, 16, 20, 8):
    state = None
    for part in x.transpose(0, 1).split(5):
        output, state = net(part, state)
        update(output.sum())
        state = state.detach()
""",
    ),
    "tokens and their successors": (
        [16] * 24,
        """
net = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for (tokens,) in DataLoader(TensorDataset(torch.randint(0, 9, (192, 21))), batch_size=16):
    for _ in range(2):  # Trained on twice: it counts in each step.
        update(net(tokens[:, :-1]).sum())
""",
    ),
    "pairs concatenated by the collate function": (
        [8] * 20,
        """
def collate(pairs):
    chosen = torch.stack([x for x, in pairs])
    return {"input_ids": torch.cat([chosen, -chosen]), "labels": torch.zeros(16)}

for batch in loader(160, 8, collate_fn=collate):
    update(model(batch["input_ids"]).sum())
""",
    ),
    "pairs concatenated in the loop": (
        [8] * 20,
        """
for (x,) in loader(160, 8):
    update(model(torch.cat([x, -x])).sum())
""",
    ),
    "two views of each image": (
        [16] * 20,
        """
net = nn.Sequential(nn.Flatten(), nn.Linear(27, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
collate = lambda items: torch.cat([torch.stack([x for x, in items])] * 2)
for x in loader(320, 16, 3, 3, 3, collate_fn=collate):
    update(net(x).sum())
""",
    ),
    "crops of several sizes": (
        [16] * 12,
        """
net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
class Crops(Dataset):
    def __len__(self):
        return 192
    def __getitem__(self, index):
        return [torch.randn(3, 8, 8)] * 2 + [torch.randn(3, 4, 4)] * 6
for crops in DataLoader(Crops(), batch_size=16):
    large, small = net(torch.cat(crops[:2])), net(torch.cat(crops[2:]))
    update(large.sum() + small.sum())
""",
    ),
    "texts packed into one row": (
        [8] * 12,
        """
net = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
def collate(texts):
    tokens = torch.cat(texts)[None]
    return {"input_ids": tokens, "labels": tokens}
texts = [torch.randint(0, 9, (5 + index % 7,)) for index in range(96)]
for batch in DataLoader(texts, batch_size=8, collate_fn=collate):
    update(net(batch["input_ids"]).sum())
""",
    ),
    "sequences first": (
        [20] * 12,
        """
net = nn.LSTM(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
collate = lambda items: torch.stack([x for x, in items], dim=1)
for x in loader(240, 20, 6, 8, collate_fn=collate):
    update(net(x)[0].sum())
""",
    ),
    "packed sequences": (
        [8] * 12,
        """
net = nn.GRU(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
collate = lambda items: pack_sequence(items, enforce_sorted=False)
items = [torch.randn(3 + index % 5, 8) for index in range(96)]
for x in DataLoader(items, batch_size=8, collate_fn=collate):
    update(net(x)[1].sum())
""",
    ),
    "a dataclass as batch": (
        [16] * 12,
        """
@dataclass
class Batch:
    mask: torch.Tensor
    values: torch.Tensor
collate = lambda items: Batch(torch.ones(8, 8), torch.stack([x for x, in items]))
for batch in loader(192, 16, collate_fn=collate):
    update(model(batch.values @ batch.mask).sum())
""",
    ),
    "nested tensors": (
        [8] * 60,
        """
import warnings
warnings.simplefilter("ignore")
net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
items = [torch.randn(3 + index % 5, 8) for index in range(480)]
for number, batch in enumerate(DataLoader(items, batch_size=8, collate_fn=list)):
    if number < 55:
        update(net(torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)).sum())
    else:
        output = net(torch.nested.nested_tensor(batch))
        update(sum(part.sum() for part in output.unbind()))
""",
    ),
    "the dataset makes batches": (
        [24] * 12,
        """
class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(12):
            yield torch.randn(24, 8), torch.zeros(24)
for x, y in DataLoader(Stream(), batch_size=None):
    update(model(x).sum())
""",
    ),
    "a stream with a short last batch": (
        ([16] * 6 + [4]) * 3,
        """
class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.randn(100, 8))
for epoch in range(3):
    for x in DataLoader(Stream(), batch_size=16):
        update(model(x).sum())
""",
    ),
    "broken samples left out": (
        [14] * 12,
        """
collate = lambda items: torch.stack([x for x, in items[2:]])
for x in loader(192, 16, collate_fn=collate):
    update(model(x).sum())
""",
    ),
    "a loader inside the dataset": (
        [16] * 12,
        """
class Inner(IterableDataset):
    def __iter__(self):
        for (x,) in loader(192 * 4, 4):
            yield x.mean(0)
for x in DataLoader(Inner(), batch_size=16):
    update(model(x).sum())
""",
    ),
    "tasks of several shots": (
        [4] * 12,
        """
class Tasks(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        return torch.randn(10, 8), torch.randn(15, 8)
for support, query in DataLoader(Tasks(), batch_size=4):
    optimizer.zero_grad()
    for few, more in zip(support, query):
        (model(few).sum() + model(more).sum()).backward()
    optimizer.step()
""",
    ),
    "two loaders mixed": (
        [32] * 20,
        """
first, second = loader(), loader()
for epoch in range(2):
    for (x,), (other,) in zip(first, second):
        update(model(0.3 * x + 0.7 * other).sum())
""",
    ),
    "labelled and unlabelled": (
        [8 + 24] * 12,
        """
for (x,), (other,) in zip(loader(96, 8), loader(288, 24)):
    update(model(x).sum() + model(other).sum())
""",
    ),
    "an endless sampler": (
        [16] * 30,
        """
class Endless(torch.utils.data.Sampler):
    def __iter__(self):
        while True:
            yield from torch.randperm(50).tolist()
batches = iter(DataLoader(rows(50), batch_size=16, sampler=Endless()))
for _ in range(30):
    (x,) = next(batches)
    update(model(x).sum())
""",
    ),
    "micro-batches": (
        [32] * 12,
        """
for (x,) in loader(384, 32):
    optimizer.zero_grad()
    for part in x.chunk(4):
        model(part).sum().backward()
    optimizer.step()
""",
    ),
    "inner epochs over a large batch": (
        [16] * 48,
        """
for (x,) in loader(192, 64):
    for epoch in range(4):
        for part in x[torch.randperm(64)].split(16):
            update(model(part).sum())
""",
    ),
    "batches kept in a list": (
        [16] * 40,
        """
batches = list(loader())
for epoch in range(4):
    for (x,) in batches:
        update(model(x).sum())
""",
    ),
    "batch after batch fetched ahead": (
        ([16] * 12 + [8]) * 2,
        """
for epoch in range(2):
    batches = iter(loader(200))
    following = next(batches)
    while following is not None:
        (x,), following = following, next(batches, None)
        update(model(x).sum())
""",
    ),
}

WITHOUT_LOADER = {
    "a generator": (
        [16] * 12,
        """
def batches():
    for _ in range(12):
        yield {"x": torch.randn(16, 8)}
for batch in batches():
    update(model(batch["x"]).sum())
""",
    ),
    "indices of a permutation": (
        ([16] * 6 + [4]) * 2,
        """
x = torch.randn(100, 8)
for epoch in range(2):
    order = torch.randperm(100)
    for start in range(0, 100, 16):
        update(model(x[order[start : start + 16]]).sum())
""",
    ),
    "packed sequences without a loader": (
        [8] * 12,
        """
net = nn.GRU(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(12):
    x = pack_sequence([torch.randn(5 - index // 2, 8) for index in range(8)])
    update(net(x)[1].sum())
""",
    ),
    "edges and nodes of one graph": (
        [0] * 12,
        """
class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)
    def forward(self, edges, x):
        return self.net(x).index_add(0, edges[0], self.net(x)[edges[1]])
model = Graph()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
edges, x = torch.randint(0, 40, (2, 90)), torch.randn(40, 8)
for _ in range(12):
    update(model(edges, x).sum())
""",
    ),
    "a state beside the batch": (
        [16] * 12,
        """
net = nn.GRU(8, 8, num_layers=2, batch_first=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(12):
    update(net(torch.randn(16, 5, 8), torch.zeros(2, 16, 8))[0].sum())
""",
    ),
}

WORK_IN_INPUT = {
    "a model in the collate function": (
        [16] * 30,
        """
encoder = nn.Linear(8, 8)
def collate(items):
    time.sleep(0.02)
    return encoder(torch.stack([x for x, in items])).detach()
for epoch in range(3):
    for x in loader(collate_fn=collate):
        update(model(x).sum())
""",
    ),
    "a model in the dataset": (
        [16] * 30,
        """
encoder = nn.Linear(8, 8)
class Encoded(Dataset):
    def __len__(self):
        return 160
    @torch.no_grad()
    def __getitem__(self, index):
        time.sleep(0.001)
        return encoder(torch.randn(8))
for epoch in range(3):
    for x in DataLoader(Encoded(), batch_size=16):
        update(model(x).sum())
""",
    ),
}

IN_A_THREAD = {
    "a thread reads the loader": (
        ([16] * 9 + [8]) * 3,
        """
class Slow(Dataset):
    def __len__(self):
        return 152
    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.randn(8)
for epoch in range(3):
    for x in Thread(DataLoader(Slow(), batch_size=16)):
        update(model(x).sum())
""",
    ),
    "a thread reads, and validates too": (
        [16] * 30,
        """
class Slow(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.randn(8)
for epoch in range(3):
    for x in Thread(DataLoader(Slow(), batch_size=16)):
        update(model(x).sum())
    with torch.no_grad():
        for x in Thread(DataLoader(Slow(), batch_size=32)):
            model(x)
""",
    ),
    "a thread trains": (
        [16] * 20,
        """
def train():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for (x,) in loader():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
thread = threading.Thread(target=train)
thread.start()
thread.join()
""",
    ),
}

GROUPS = (FROM_LOADERS, WITHOUT_LOADER, WORK_IN_INPUT, IN_A_THREAD)
PROGRAMS = {name: program for group in GROUPS for name, program in group.items()}


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    programs = {name: PRELUDE + text for name, (_, text) in PROGRAMS.items()}
    return watch_programs(programs, tmp_path_factory.mktemp("feeding"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_step_has_the_samples_that_it_trains_on(name, watched):
    samples, _ = PROGRAMS[name]
    assert watched[name].find("unwatched") is None
    assert watched[name].column("samples") == samples


@pytest.mark.parametrize("name", WORK_IN_INPUT)
def test_a_model_called_by_the_loader_is_input(name, watched):
    assert watched[name].phases["input"] > 0.45, "the loader sleeps for longer in all"
    assert not watched[name].spans("validate")


@pytest.mark.parametrize("name", IN_A_THREAD)
def test_what_a_thread_reads_is_no_part_of_a_step(name, watched):
    seen = watched[name]
    trained = sum(span["end"] - span["start"] for span in seen.spans("train"))
    assert sum(seen.column("seconds")) == pytest.approx(trained, rel=0.02)
    assert len(seen.spans("validate")) == (3 if "validates" in name else 0)
    assert ("input" in seen.phases) == (name == "a thread trains"), "waiting for a thread is other"
