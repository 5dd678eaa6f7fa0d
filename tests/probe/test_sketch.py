"""Sketches are linear, and depend on nothing but a layer's name and its elements."""

import pytest
import torch
from torch import nn

from scalewise.probe.torch import sketch
from scalewise.probe.torch.certificate_mode import (
    OptimizerSketches,
    dropout_patches,
    loss_patches,
    own_batch_norms,
    parameter_names,
    seed_everything,
    switch_dropout_off,
)
from scalewise.probe.torch.output_sketch import OutputSketches
from scalewise.probe.torch.sketch import Piece, Sketcher, sample_fingerprints

SHAPES = {"small": (7, 5), "large": (90, 130), "vector": (11,), "scalar": ()}


def sketch_of(tensors):
    sketcher = Sketcher(tensors)
    return sketcher.sketch(sketcher.elements([*tensors.values()]))


def blocks(shape):
    """Two uneven shards along each of the first two dimensions: as FSDP over tensor parallelism."""
    rows = [(0, 4), (4, shape[0])]
    columns = [(0, 3), (3, shape[1])] if len(shape) > 1 else [(0, 1)]
    return [(row, column) for row in rows for column in columns]


@pytest.mark.parametrize("name", ["small", "large", "vector"])
def test_the_sketches_of_shards_add_up_to_that_of_the_layer(name, monkeypatch):
    shape = SHAPES[name]
    tensor = torch.randn(shape, dtype=torch.float64)
    whole = sketch_of({name: tensor})[name]
    parts = []
    cuts = blocks(shape)
    for index, cut in enumerate(cuts):
        ranges = cut[: len(shape)]
        shard = tensor[tuple(slice(*each) for each in ranges)].contiguous()
        offsets = tuple(start for start, _ in ranges)
        piece = Piece(shape, offsets, tuple(shard.shape), (index, len(cuts)))
        monkeypatch.setattr(sketch, "piece_of", lambda _, piece=piece: piece)
        parts.append(sketch_of({name: shard})[name])
    assert [part["shard"] for part in parts] == [[n, len(cuts)] for n in range(len(cuts))]
    total = [sum(sums) for sums in zip(*(part["sums"] for part in parts), strict=True)]
    assert total == pytest.approx(whole["sums"], abs=1e-12)
    assert sum(part["squares"] for part in parts) == pytest.approx(whole["squares"])


def test_a_sketch_estimates_the_norm_of_a_difference():
    tensor, other = torch.randn(90, 130), torch.randn(90, 130)
    names = [f"layer{n}" for n in range(200)]
    ours, theirs = (sketch_of(dict.fromkeys(names, each)) for each in (tensor, other))
    estimates = [
        sum((a - b) ** 2 for a, b in zip(ours[n]["sums"], theirs[n]["sums"], strict=True)) / 8
        for n in names
    ]
    truth = (tensor - other).square().sum().item() * sketch.MAX_ELEMENTS / tensor.numel()
    assert sum(estimates) / len(estimates) == pytest.approx(truth, rel=0.15)
    assert len({tuple(ours[n]["sums"]) for n in names}) == 200  # Each name has its own signs.


def test_a_sketch_does_not_depend_on_memory_format_neighbours_or_dtype():
    tensor = torch.randn(8, 6, 5, 4)
    alone = sketch_of({"conv": tensor})["conv"]
    channels_last = tensor.to(memory_format=torch.channels_last)
    tensors = {"other": torch.randn(3), "conv": channels_last, "half": torch.ones(2).bfloat16()}
    sketches = sketch_of(tensors)
    assert sketches["conv"]["sums"] == pytest.approx(alone["sums"])
    assert sketches["half"]["squares"] == 2.0
    assert sketch_of({"conv": tensor.double()})["conv"]["sums"] == pytest.approx(alone["sums"])


def test_the_signs_of_a_name_never_change():
    """Runs of other versions are compared: what a name stands for must stay as it is."""
    numbers = torch.arange(10_000.0).reshape(100, 100)
    sums = sketch_of({"fc1.weight": numbers})["fc1.weight"]["sums"]
    assert sums[:2] == [-592599.0, 171457.0]


def test_a_layer_without_a_gradient_has_no_sketch_of_it():
    lines = []
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(3, 2))
    named = dict(model.named_parameters())
    sketches = OptimizerSketches(named, lambda **line: lines.append(line["sketch"]), dict)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model[0](torch.ones(1, 3)).sum().backward()
    sketches.begin_step()
    optimizer.step()
    assert sketches.end_step()
    by_kind = {line["kind"]: line["layers"] for line in lines}
    assert [line["kind"] for line in lines] == ["weight", "gradient", "update"]
    assert set(by_kind["gradient"]) == {"0.weight", "0.bias"}
    assert set(by_kind["update"]) == set(named)
    gradient, update = by_kind["gradient"]["0.weight"], by_kind["update"]["0.weight"]
    expected = [-0.5 * value for value in gradient["sums"]]
    assert update["sums"] == pytest.approx(expected, abs=1e-5)
    assert by_kind["update"]["1.weight"]["squares"] == 0.0
    for _ in range(3):
        sketches.begin_step()
        sketches.end_step()
    assert {line["step"] for line in lines} == {0, 1, 2}


def test_names_are_those_of_the_model_without_wrappers():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    plain = parameter_names([model])
    assert sorted(plain.values()) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    wrapped, compiled = nn.DataParallel(model), nn.Module()
    compiled._orig_mod = model  # As torch.compile holds it; importing that takes seconds.
    for other in (wrapped, compiled, nn.DataParallel(compiled)):
        assert parameter_names([other]) == plain
        assert own_batch_norms([other]) == ["1"]
    model.eval()
    assert own_batch_norms([model]) == []


def test_dropout_is_off_in_modules_and_functions(monkeypatch):
    for owner, name, _, replacement in dropout_patches():
        monkeypatch.setattr(owner, name, replacement)
    ones = torch.ones(64)
    assert torch.equal(nn.functional.dropout(ones, 0.9), ones)
    assert torch.equal(nn.Dropout(0.9)(ones), ones)
    query = torch.randn(1, 2, 8, 4)
    attend = nn.functional.scaled_dot_product_attention
    for result in (
        attend(query, query, query, dropout_p=0.9),
        attend(query, query, query, None, 0.9),
    ):
        assert torch.allclose(result, attend(query, query, query))
    scripted = torch.jit.script(nn.Sequential(nn.Dropout(0.9)))
    assert torch.equal(scripted(ones), ones)
    model = nn.ModuleList([nn.LSTM(2, 2, 2, dropout=0.5), nn.Dropout(0.1), nn.Dropout(0.0)])
    assert switch_dropout_off(model) == 2
    assert model[0].dropout == model[1].p == 0.0


def test_targets_that_a_loss_ignores_are_counted(monkeypatch):
    counted = []
    patches = loss_patches(lambda target, ignored: counted.append(int((target != ignored).sum())))
    for owner, name, _, replacement in patches:
        monkeypatch.setattr(owner, name, replacement)
    scores, target = torch.randn(4, 3), torch.tensor([0, 2, -100, 0])
    mean = nn.functional.cross_entropy(scores, target)
    assert nn.CrossEntropyLoss(ignore_index=0)(scores, target.abs() % 3) > 0
    assert torch.allclose(nn.NLLLoss()(scores.log_softmax(1), target), mean)
    assert counted == [3, 2, 3]
    scripted = torch.jit.script(nn.CrossEntropyLoss())
    assert torch.equal(scripted(scores, target), mean)


def test_outputs_are_added_up_over_calls_in_any_order():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    inputs = torch.randn(6, 3)
    sketches = []
    for batches in ([inputs], [inputs[3:], inputs[:3]]):
        outputs = OutputSketches(lambda: False)
        outputs.add(model)
        for batch in batches:
            model(batch)
        sketches.append(outputs.end())
        model(inputs)  # The hooks are removed.
    whole, parts = sketches
    assert list(whole) == list(parts) == ["0 4", "2 2"]
    for key in whole:
        assert parts[key]["sums"] == pytest.approx(whole[key]["sums"], abs=1e-5)
    total = model[0](inputs).sum(0)
    expected = sketch_of({"0.bias": total})["0.bias"]["sums"]
    assert whole["0 4"]["sums"] == pytest.approx(expected, abs=1e-5)


def test_seeds_give_the_same_numbers():
    import random

    numbers = []
    with torch.random.fork_rng():
        for _ in range(2):
            seed_everything(3)
            numbers.append((random.random(), torch.rand(1).item()))
    assert numbers[0] == numbers[1]


def test_fingerprints_tell_samples_apart_and_know_them_again():
    images, labels = torch.randn(64, 3, 20, 20), torch.arange(64) % 7
    prints = sample_fingerprints([images, labels])
    assert len(set(prints)) == 64
    order = torch.randperm(64)
    again = sample_fingerprints([images[order].clone(), labels[order]])
    assert again == [prints[n] for n in order]
    assert sample_fingerprints([images, labels + 1])[0] != prints[0]
    assert sample_fingerprints([]) == []
