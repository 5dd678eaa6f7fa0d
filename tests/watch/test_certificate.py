"""Watched scripts in certificate mode: the samples and gradients of one device on two ranks."""

import subprocess
import sys
from pathlib import Path

import pytest

from certificate_runs import watch
from compared_sketches import differences, layers
from scalewise.record.sketches import sketched_steps

SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

fault, world = sys.argv[1], int(os.environ["WORLD_SIZE"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.fc1, self.dropout, self.fc2 = nn.Linear(64, 300), nn.Dropout(0.5), nn.Linear(300, 3)
        self.norm.eval()

    def forward(self, x):
        x = torch.tanh(self.norm(self.conv(x))).flatten(1)
        return self.fc2(self.dropout(torch.tanh(self.fc1(x))))


def main():
    data = torch.Generator().manual_seed(7)
    images = torch.randn(60, 1, 6, 6, generator=data)
    dataset = TensorDataset(images, torch.randint(0, 3, (60,), generator=data))
    model, sampler = Net(), None
    if world > 1:
        dist.init_process_group("gloo")
        sampler = DistributedSampler(dataset, seed=11)
        if fault != "no_ddp":
            model = DistributedDataParallel(model)
    if fault == "no_sampler":
        sampler = None
    batch = 12 // world
    loader = DataLoader(dataset, batch, shuffle=sampler is None, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    loss_of = nn.CrossEntropyLoss()
    for epoch in range(1, 4):
        if sampler and fault != "no_set_epoch":
            sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss_of(model(inputs), labels).backward()
            optimizer.step()
        with torch.no_grad():
            for inputs, labels in DataLoader(dataset, 20):
                model(inputs)
    if world > 1:
        dist.destroy_process_group()


main()
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def reference(script, tmp_path_factory):
    return watch(tmp_path_factory.mktemp("reference") / "run", 1, script, "none")


def samples(record, step):
    """Return the fingerprints of all ranks at a step."""
    lines = [each for rank in record.ranks for each in rank.sketch_samples if each.step == step]
    return sorted(each for line in lines for each in line.fingerprints)


def test_reversed_batches_have_the_same_samples_and_almost_the_same_sums(
    reference, script, tmp_path
):
    run = watch(tmp_path / "run", 1, script, "none", certify_order="reversed")
    assert sketched_steps(run.ranks, "gradient") == [0, 1, 2, 8, 9]
    assert [samples(run, n) for n in (0, 9)] == [samples(reference, n) for n in (0, 9)]
    apart = differences(reference, run, "gradient")
    assert 0.0 < max(apart.values()) < 1e-4
    assert run.ranks[0].notes.certificate.order == "reversed"


def test_ddp_on_two_ranks_trains_as_one_device(reference, script, tmp_path):
    run = watch(tmp_path / "run", 2, script, "none", stop_after=10)
    assert layers(run).keys() == layers(reference).keys() >= {"conv.weight", "fc1.bias"}
    weights = differences(reference, run, "weight")
    assert {value for (step, _), value in weights.items() if step == 0} == {0.0}
    assert {step for step, _ in weights} == {0, 1, 2, 9}
    assert max(differences(reference, run, "gradient").values()) < 1e-4
    assert max(differences(reference, run, "update").values()) < 0.05
    for step in (0, 1, 2, 8, 9):
        assert samples(run, step) == samples(reference, step)
        assert len(set(samples(run, step))) == 12
    facts = run.ranks[1].notes.certificate
    assert (facts.dropout_off, facts.layers, facts.world) == (1, 8, 2)
    assert (facts.sampler, facts.sampler_seed, facts.epoch_steps) == ("DistributedSampler", 11, 5)
    assert (facts.precision, facts.unsupported, facts.batch_norm) == ("float32", None, [])
    buffers = [sketch for sketch in run.ranks[0].sketches if sketch.kind == "buffer"]
    assert [sketch.step for sketch in buffers] == [9]


@pytest.mark.parametrize("fault", ["no_ddp", "no_sampler", "no_set_epoch"])
def test_a_fault_shows_in_what_ranks_record(fault, reference, script, tmp_path):
    run = watch(tmp_path / "run", 2, script, fault)
    first, later = samples(run, 0), samples(run, 8)
    if fault == "no_ddp":
        one, other = layers(run)["fc1.weight"]
        assert one.ranks == (0,) and other.ranks == (1,)
        assert one.sketch.sums != other.sketch.sums
    elif fault == "no_sampler":
        assert len(first) == 12 and len(set(first)) == 6
    else:
        assert first == samples(reference, 0)
        assert later != samples(reference, 8)


def test_layers_without_an_optimizer_are_named_unless_their_weights_change():
    from torch import nn, ones

    from scalewise.probe.torch.certificate_mode import parameter_names
    from scalewise.watch.torch.certificate import Unowned

    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(5)))
    model[1].requires_grad_(requires_grad=False)
    model(ones(1, 2)).sum().backward()
    owned = {id(parameter) for parameter in model[0].parameters()}
    unowned = Unowned([model], parameter_names([model]), owned)
    model[2].weight.data += 1  # As the copy of an optimizer's own weights.
    unowned.compare()
    later = {id(parameter) for parameter in model[3].parameters()}
    assert unowned.unchanged(owned | later) == ["2.bias", "4.weight", "4.bias"]


def test_nothing_is_recorded_or_imported_without_certify(script, tmp_path):
    run = watch(tmp_path / "run", 1, script, "none", certify=False, stop_after=2)
    rank = run.ranks[0]
    assert (rank.sketches, rank.sketch_samples, rank.notes.certificate) == ((), (), None)
    code = "import sys, scalewise.watch.torch.hooks; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name for name in done.stdout.split() if "certificate" in name or "sketch" in name}
