"""Ledgers: what a program does is counted twice, and a doubt names both numbers if they differ.

All programs of a table run in one process after the other, on one rank.
"""

import time

import pytest

from scalewise.record.close import close
from scalewise.report.text.doubts import alert_lines
from scalewise.results import comparison_sides
from watch_many import watch_programs

pytestmark = pytest.mark.timeout(300)

PRELUDE = """
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

def data(samples=320):
    return TensorDataset(torch.randn(samples, 8), torch.randn(samples, 1))

def loader(samples=320, batch=32, **options):
    return DataLoader(data(samples), batch_size=batch, **options)

def network():
    return nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))

def sgd(net, rate=0.01):
    return torch.optim.SGD(net.parameters(), lr=rate)

net = network()
optimizer = MAKE_OPTIMIZER

def error(x, y, model=None):
    return (((net if model is None else model)(x) - y) ** 2).mean()

def train(x, y):
    optimizer.zero_grad()
    error(x, y).backward()
    optimizer.step()
"""

CORRECT = {
    "plain": "for x, y in loader(): train(x, y)",
    "a_last_batch_is_smaller": "for _ in range(3):\n    for x, y in loader(330): train(x, y)",
    "the_last_batch_is_dropped": "for x, y in loader(330, drop_last=True): train(x, y)",
    "one_batch_ahead": """
batches = iter(loader(640))
ahead = next(batches)
while ahead is not None:
    now, ahead = ahead, next(batches, None)
    train(*now)
""",
    "two_batches_ahead_are_not_used": """
batches = iter(loader(960))
ahead = [next(batches), next(batches)]
for _ in range(20):
    ahead.append(next(batches))
    train(*ahead.pop(0))
""",
    "left_in_the_middle": """
for epoch in range(4):
    for number, (x, y) in enumerate(loader()):
        if number == 6:
            break
        train(x, y)
""",
    "validation_after_each_epoch": """
training, validation = loader(), loader(640)
for epoch in range(3):
    for x, y in training: train(x, y)
    with torch.no_grad():
        for x, y in validation: error(x, y)
""",
    "a_batch_of_validation_now_and_then": """
checks = iter(loader(640))
for epoch in range(5):
    for number, (x, y) in enumerate(loader()):
        if number % 5 == 0:
            with torch.no_grad():
                error(*next(checks))
        train(x, y)
""",
    "the_training_loader_also_evaluates": """
batches = loader()
for epoch in range(3):
    for x, y in batches: train(x, y)
    with torch.no_grad():
        for x, y in batches: error(x, y)
""",
    "statistics_before_training": """
batches = loader()
mean = sum(x.mean() for x, y in batches) / len(batches)
for x, y in batches: train(x - mean, y)
""",
    "batches_in_a_list": """
batches = list(loader())
for epoch in range(5):
    for x, y in batches: train(x, y)
""",
    "batches_kept_in_the_first_epoch": """
kept = []
for x, y in loader():
    kept.append((x, y))
    train(x, y)
for epoch in range(5):
    for x, y in kept: train(x, y)
""",
    "accumulated": """
for epoch in range(3):
    for number, (x, y) in enumerate(loader(), 1):
        error(x, y).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
""",
    "gan": """
critic = sgd(other := network())
for epoch in range(2):
    for x, y in loader():
        critic.zero_grad()
        error(x, y, other).backward()
        critic.step()
        train(x, y)
""",
    "five_critic_steps_for_one_generator_step": """
critic = sgd(other := network())
for epoch in range(4):
    for number, (x, y) in enumerate(loader(), 1):
        critic.zero_grad()
        error(x, y, other).backward()
        critic.step()
        if number % 5 == 0:
            optimizer.zero_grad()
            net(torch.randn(32, 8)).sum().backward()
            optimizer.step()
""",
    "a_new_optimizer_each_epoch": """
for epoch in range(4):
    optimizer = sgd(net)
    for x, y in loader(): train(x, y)
""",
    "an_optimizer_for_each_weight": """
optimizers = [torch.optim.SGD([weight], lr=0.01) for weight in net.parameters()]
for x, y in loader():
    error(x, y).backward()
    for one in optimizers:
        one.step()
        one.zero_grad()
""",
    "lbfgs": """
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4)
for x, y in loader():
    def closure():
        optimizer.zero_grad()
        loss = error(x, y)
        loss.backward()
        return loss
    optimizer.step(closure)
""",
    "sharpness_aware": """
for x, y in loader():
    error(x, y).backward()
    with torch.no_grad():
        moved = [0.05 * weight.grad for weight in net.parameters()]
        for weight, step in zip(net.parameters(), moved): weight += step
    optimizer.zero_grad()
    error(x, y).backward()
    with torch.no_grad():
        for weight, step in zip(net.parameters(), moved): weight -= step
    optimizer.step()
    optimizer.zero_grad()
""",
    "a_gradient_scaler_skips": """
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for number, (x, y) in enumerate(loader()):
    optimizer.zero_grad()
    loss = error(x, y) * (float("inf") if number == 4 else 1)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "a_step_without_gradients_first": """
optimizer.step()
for x, y in loader(): train(x, y)
""",
    "gradients_by_autograd_grad": """
for x, y in loader():
    gradients = torch.autograd.grad(error(x, y), list(net.parameters()))
    for weight, gradient in zip(net.parameters(), gradients): weight.grad = gradient
    optimizer.step()
""",
    "by_hand": """
for x, y in loader():
    net.zero_grad()
    error(x, y).backward()
    with torch.no_grad():
        for weight in net.parameters(): weight -= 0.01 * weight.grad
""",
    "it_ends_by_os_exit": """
import os
for epoch in range(3):
    for x, y in loader(): train(x, y)
os._exit(0)
""",
    "a_stream": """
class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(torch.randn(330, 8), torch.randn(330, 1)))
for epoch in range(2):
    for x, y in DataLoader(Stream(), batch_size=32): train(x, y)
""",
    "a_new_iterator_each_step": """
batches = loader(shuffle=True)
for _ in range(30): train(*next(iter(batches)))
""",
    "two_loaders_at_once": """
for (x, y), (a, b) in zip(loader(), loader()): train((x + a) / 2, (y + b) / 2)
""",
    "a_loader_of_batches": """
class Batches(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, index): return torch.randn(32, 8), torch.randn(32, 1)
for x, y in DataLoader(Batches(), batch_size=None): train(x, y)
""",
    "batches_of_several_sizes_by_a_sampler_of_its_own": """
sizes = [5, 30, 9, 20, 7, 14, 6, 11] * 5
starts = [sum(sizes[:number]) for number in range(len(sizes))]
batches = [list(range(start, start + size)) for start, size in zip(starts, sizes)]
for x, y in DataLoader(data(sum(sizes)), batch_sampler=batches): train(x, y)
""",
    "long_validation_after_the_first_step": """
import time
for number, (x, y) in enumerate(loader()):
    train(x, y)
    if number == 0:
        with torch.no_grad():
            for _ in range(3):
                error(x, y)
                time.sleep(0.4)
""",
    "a_judge_takes_several_steps_on_each_batch": """
makes = sgd(maker := nn.Linear(4, 8))
for x, _ in loader():
    for _ in range(5):
        optimizer.zero_grad()
        (net(maker(torch.randn(len(x), 4))).mean() - net(x).mean()).backward()
        optimizer.step()
    makes.zero_grad()
    net(maker(torch.randn(len(x), 4))).mean().backward()
    makes.step()
""",
    "batches_turned_for_a_layer": """
class Series(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 4), nn.Linear(4, 1)
    def forward(self, x):
        return self.out(self.lstm(x.transpose(0, 1))[0][-1])
net = Series()
optimizer = sgd(net)
for _ in range(20): train(torch.randn(32, 5, 8), torch.randn(32, 1))
""",
    "lazy_regularization": """
judges = sgd(judge := network())
for number, (x, _) in enumerate(loader(640)):
    for _ in range(2 if number % 4 == 0 else 1):
        judges.zero_grad()
        judge(x).mean().backward()
        judges.step()
    optimizer.zero_grad()
    judge(x + net(x)).mean().backward()
    optimizer.step()
""",
    "an_endless_sampler": """
class Endless(torch.utils.data.Sampler):
    def __iter__(self):
        while True:
            yield from torch.randperm(40).tolist()
    def __len__(self):
        return 40
batches = iter(DataLoader(data(40), batch_size=4, sampler=Endless()))
for _ in range(30): train(*next(batches))
""",
    "a_judge_called_twice_for_each_batch": """
makes = sgd(maker := nn.Linear(4, 8))
for x, _ in loader():
    fake = maker(torch.randn(len(x), 4))
    makes.zero_grad()
    net(fake).mean().backward()
    makes.step()
    optimizer.zero_grad()
    (net(fake.detach()).mean() - net(x).mean()).backward()
    optimizer.step()
""",
    "sequence_first_with_a_sampler": """
class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 4), nn.Linear(4, 1)
    def forward(self, x):
        return self.out(self.lstm(x.unsqueeze(0))[0][0])
net = Sequences()
optimizer = sgd(net)
for x, y in loader(): train(x, y)
""",
}


def find_doubts(folder, programs):
    """Run programs; return the lines with the doubts of each that the ledgers found."""
    texts = {}
    for name, text in programs.items():
        texts[name] = PRELUDE.replace("MAKE_OPTIMIZER", "None" if name == "by_hand" else "sgd(net)")
        texts[name] += text
    watch_programs(texts, folder)
    lines = {}
    for name in programs:
        assert close(folder / name, attempt=1, world=1, ended=time.time()) == ""
        (side,) = comparison_sides(folder / name)
        doubts = [doubt for doubt in side.curve.doubts if doubt.kind in LEDGER_KINDS]
        lines[name] = alert_lines(doubts)
    return lines


LEDGER_KINDS = (
    "steps unaccounted", "some steps unaccounted", "samples unaccounted",
    "some samples unaccounted", "time unaccounted", "frequent pauses", "several threads",
    "sequence first", "rows of one", "calls added", "rows unclear",
    "samples unknown",
)  # fmt: skip


def test_correct_programs_raise_no_doubt(tmp_path):
    found = find_doubts(tmp_path, CORRECT)
    assert {name: lines for name, lines in found.items() if lines} == {}
    (side,) = comparison_sides(tmp_path / "it_ends_by_os_exit")
    assert side.curve.points[0].samples == 960  # Its last steps are not lost.


TREE = """
class Tree(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
    def forward(self, left, right):
        return self.layer(left).mean() + self.layer(right).mean()
net = Tree()
optimizer = sgd(net)
"""
"""A model whose two inputs may have different numbers of rows."""

BROKEN = {
    "steps_are_lost": """
from scalewise.watch.torch.observer import Observer
close_steps = Observer._close_steps
def lose(self, ended):
    watcher, real = self.watcher, self.watcher.add_steps
    watcher.add_steps = lambda rows: real(rows) if self.steps % 4 == 0 else None
    close_steps(self, ended)
    watcher.add_steps = real
Observer._close_steps = lose
Observer.state = lambda self: None
for epoch in range(4):
    for x, y in loader(): train(x, y)
""",
    "samples_are_lost": """
from scalewise.watch.torch.sample_counts import SampleCounts
SampleCounts.close = lambda self, count: 2
for epoch in range(4):
    for x, y in loader(): train(x, y)
""",
    "samples_count_twice": """
from scalewise.watch.torch.sample_counts import SampleCounts
SampleCounts.close = lambda self, count: 64
for epoch in range(4):
    for x, y in loader(): train(x, y)
""",
    "steps_count_twice": """
from scalewise.probe.watcher import Watcher
add = Watcher.add_steps
Watcher.add_steps = lambda self, rows: add(self, [row for row in rows for _ in range(2)])
for x, y in loader(): train(x, y)
""",
    "optimizers_in_turn_with_batches_of_their_own": """
optimizers = [sgd(net[0]), sgd(net[2])]
for number, (x, y) in enumerate(loader(1280)):
    net.zero_grad()
    error(x, y).backward()
    optimizers[number % 2].step()
""",
    "no_span_covers_the_start": """
import time
from scalewise.probe.watcher import Watcher
Watcher.record_build = lambda self, moment: None
time.sleep(1.2)
for x, y in loader(): train(x, y)
""",
    "all_time_is_validation": """
import time
for epoch in range(2):
    for x, y in loader():
        train(x, y)
        with torch.no_grad():
            error(x, y)
            time.sleep(0.05)
""",
    "sequence_first_without_a_loader": """
net = nn.LSTM(8, 4)
optimizer = sgd(net)
for length in range(5, 25):
    optimizer.zero_grad()
    net(torch.randn(length, 6, 8))[0].mean().backward()
    optimizer.step()
""",
    "a_text_with_the_time_first": """
class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(50, 8), nn.Linear(8, 50)
    def forward(self, now, following):
        return nn.functional.cross_entropy(self.out(self.words(now)).mT, following)
net = Text()
optimizer = sgd(net)
text = torch.randint(0, 50, (601, 8))
for start in range(0, 600, 20):
    optimizer.zero_grad()
    net(text[start : start + 20], text[start + 1 : start + 21]).backward()
    optimizer.step()
""",
    "a_critic_with_three_backwards_without_a_loader": """
makes = sgd(maker := nn.Linear(4, 8))
for _ in range(20):
    optimizer.zero_grad()
    for x in (torch.randn(32, 8), maker(torch.randn(32, 4)).detach(), torch.randn(32, 8)):
        net(x).mean().backward()
    optimizer.step()
    makes.zero_grad()
    net(maker(torch.randn(32, 4))).mean().backward()
    makes.step()
""",
    "a_small_loader_that_cycle_keeps": """
import itertools
for (x, y), (u, v) in zip(loader(320, 16), itertools.cycle(loader(24, 6))):
    optimizer.zero_grad()
    (error(x, y) + error(u, v)).backward()
    optimizer.step()
""",
    "parts_of_trees": TREE
    + """
for number in range(20):
    optimizer.zero_grad()
    net(torch.randn(3 + (number % 4 > 0), 8), torch.randn(4, 8)).backward()
    optimizer.step()
""",
    "parts_of_trees_that_seldom_have_equal_rows": TREE
    + """
for number in range(20):
    optimizer.zero_grad()
    net(torch.randn(3 + number % 3, 8), torch.randn(4, 8)).backward()
    optimizer.step()
""",
    "gradients_without_a_backward": """
import time
time.sleep(1.2)
for x, y in loader():
    with torch.no_grad():
        noise = [torch.randn_like(weight) for weight in net.parameters()]
        for weight, change in zip(net.parameters(), noise): weight += 0.01 * change
        up = error(x, y)
        for weight, change in zip(net.parameters(), noise): weight -= 0.02 * change
        down = error(x, y)
        for weight, change in zip(net.parameters(), noise): weight += 0.01 * change
    for weight, change in zip(net.parameters(), noise): weight.grad = (up - down) * change
    optimizer.step()
""",
    "the_input_is_trained": """
code = nn.Parameter(torch.randn(1, 8))
optimizer = torch.optim.SGD([code, *net.parameters()], lr=0.01)
for _ in range(20):
    optimizer.zero_grad()
    (torch.randn(16, 1) * net(code)).mean().backward()
    optimizer.step()
""",
    "a_dataset_of_batches": """
class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, index):
        return torch.randn(32, 8), torch.randn(32, 1)
for x, y in DataLoader(Batches(), batch_size=1, collate_fn=lambda items: items[0]): train(x, y)
""",
    "a_collate_function_that_cuts_a_batch_from_an_object": """
class Events:
    def __init__(self, start):
        self.x, self.y = torch.randn(32, 8), torch.randn(32, 1)
batches = DataLoader(range(0, 640, 32), batch_size=1, collate_fn=lambda starts: Events(starts[0]))
for events in batches: train(events.x, events.y)
""",
    "a_collate_function_that_makes_an_object_of_unknown_size": """
class Events:
    __slots__ = ("x", "y")
    def __init__(self, start):
        self.x, self.y = torch.randn(32, 8), torch.randn(32, 1)
batches = DataLoader(range(0, 640, 32), batch_size=1, collate_fn=lambda starts: Events(starts[0]))
for events in batches: train(events.x, events.y)
""",
    "a_dataset_of_batches_of_which_the_last_is_smaller": """
class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        size = 20 if index == 3 else 32
        return torch.randn(size, 8), torch.randn(size, 1)
for epoch in range(5):
    for x, y in DataLoader(Batches(), batch_size=1, collate_fn=lambda items: items[0]): train(x, y)
""",
    "two_threads": """
import threading
def work():
    model = network()
    optimizer = sgd(model)
    for epoch in range(20):
        for x, y in loader():
            optimizer.zero_grad()
            error(x, y, model).backward()
            optimizer.step()
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    "a_batch_to_look_at": """
torch.manual_seed(0)
net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
batches = iter(DataLoader(TensorDataset(torch.randn(66, 8)), batch_size=4))
fixed, = next(batches)
for x, in batches:
    optimizer.zero_grad()
    (net(torch.randn(len(x), 8)).mean() - net(x).mean()).backward()
    optimizer.step()
""",
}
"""Programs under a watcher with a fault, and programs whose steps cannot be told apart."""


def test_a_difference_is_a_doubt_with_both_numbers(tmp_path):
    found = find_doubts(tmp_path, BROKEN)
    first = {name: (lines or [""])[0] for name, lines in found.items()}
    assert first["steps_are_lost"].startswith("Not reliable [steps-unaccounted]")
    assert "10 steps of rank 0 were recorded" in first["steps_are_lost"]
    assert "updated 40 times" in first["steps_are_lost"]
    assert first["samples_are_lost"].startswith("Not reliable [samples-unaccounted]")
    assert "have 80 samples" in first["samples_are_lost"]
    assert "gave at least 1,280" in first["samples_are_lost"]
    assert first["samples_count_twice"].startswith("Doubtful [some-samples-unaccounted]")
    assert "first step of rank 0 has 8 samples" in first["a_batch_to_look_at"]
    assert "62 samples are right, not 66" in first["a_batch_to_look_at"]
    assert "2,560 samples" in first["samples_count_twice"]
    assert "only 1,280" in first["samples_count_twice"]
    assert "20 steps of rank 0" in first["steps_count_twice"]
    assert "took only 10" in first["steps_count_twice"]
    assert "20 steps of rank 0" in first["optimizers_in_turn_with_batches_of_their_own"]
    assert "there were 40" in first["optimizers_in_turn_with_batches_of_their_own"]
    assert first["a_text_with_the_time_first"].startswith("Doubtful [sequence-first]")
    critic = first["a_critic_with_three_backwards_without_a_loader"]
    assert critic.startswith("Doubtful [calls-added]")
    assert first["a_small_loader_that_cycle_keeps"].startswith("Doubtful [some-samples")
    (side,) = comparison_sides(tmp_path / "a_small_loader_that_cycle_keeps")
    assert side.curve.points[0].samples == 20 * 22
    assert first["parts_of_trees"].startswith("Doubtful [rows-unclear]")
    seldom = first["parts_of_trees_that_seldom_have_equal_rows"]
    assert seldom.startswith("Doubtful [samples-unknown]")
    assert first["gradients_without_a_backward"].startswith("Doubtful [samples-unknown]")
    assert len(found["gradients_without_a_backward"]) == 2  # With its fix; no other doubt.
    assert first["no_span_covers_the_start"].startswith("Doubtful [time-unaccounted]")
    assert first["all_time_is_validation"].startswith("Doubtful [frequent-pauses]")
    assert first["sequence_first_without_a_loader"].startswith("Doubtful [sequence-first]")
    assert (
        "1 sample for each batch, and a collate function makes 32" in first["a_dataset_of_batches"]
    )
    assert (
        "1 sample for each batch, and a collate function makes 32"
        in first["a_dataset_of_batches_of_which_the_last_is_smaller"]
    )
    assert (
        "1 sample for each batch, and a collate function makes 32"
        in first["a_collate_function_that_cuts_a_batch_from_an_object"]
    )
    assert (
        "a batch of unknown size"
        in first["a_collate_function_that_makes_an_object_of_unknown_size"]
    )
    assert first["the_input_is_trained"].startswith("Doubtful [samples-unknown]")
    assert first["two_threads"]  # Of threads, or of steps: watching may stop where they collide.
    assert "samples_per_step=" in found["samples_are_lost"][1]
