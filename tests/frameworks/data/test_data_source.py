"""Which rank sees which sample when, and the files data comes from."""

import gzip
import struct

import numpy as np
import pytest
import torch
from torch import nn

from builders import a_run
from scalewise.errors import PluginError, SpecError
from scalewise.frameworks import data_source as source
from scalewise.frameworks.data import idx
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.in_memory_data import read
from scalewise.frameworks.sampler import Shards
from scalewise.frameworks.torch.input.data_sets import Preprocessing, load, resize_by_matmul

RULES = ["drop", "pad", "short"]


def shards(size, replicas, *, batch=4, accumulate=1, remainder="drop", seed=0):
    """Return every replica's shards of a data set."""
    spec = a_run(
        topology=f"1x{replicas}", batch=batch, accumulate=accumulate, remainder=remainder, seed=seed
    )
    return [Shards(size, spec, replica) for replica in range(replicas)]


def by_step(parts, accumulate=1):
    """Return, for each optimizer step, the samples of all replicas that count."""
    steps = []
    for step in range(parts[0].steps):
        steps.append([])
        for part in parts:
            micro = list(part)[step * accumulate : (step + 1) * accumulate]
            for indices, count in zip(micro, part.counts(step), strict=True):
                steps[-1] += indices.tolist()[:count]
    return steps


def flat(steps):
    return [index for step in steps for index in step]


@pytest.mark.parametrize("remainder", RULES)
@pytest.mark.parametrize("size", [1438, 97, 64, 33])
def test_a_global_batch_is_the_same_set_on_any_number_of_replicas(size, remainder):
    alone = by_step(shards(size, 1, batch=12, remainder=remainder))
    for replicas in (2, 3, 4):
        spread = by_step(shards(size, replicas, batch=12 // replicas, remainder=remainder))
        assert [sorted(step) for step in spread] == [sorted(step) for step in alone]


@pytest.mark.parametrize(("size", "replicas"), [(1438, 2), (1797, 3), (11, 4), (5, 4)])
def test_no_sample_comes_twice_and_only_the_ragged_batch_is_dropped(size, replicas):
    seen = flat(by_step(shards(size, replicas)))
    assert len(seen) == len(set(seen))
    whole = 4 * replicas
    assert len(seen) == (size // whole * whole or size)


@pytest.mark.parametrize(("size", "replicas"), [(1438, 2), (1797, 3), (11, 4), (17, 4)])
def test_short_keeps_every_sample_exactly_once(size, replicas):
    seen = flat(by_step(shards(size, replicas, remainder="short")))
    assert sorted(seen) == list(range(size))


@pytest.mark.parametrize(("size", "replicas"), [(1438, 2), (11, 4), (5, 4)])
def test_pad_fills_the_last_batch_with_repeats(size, replicas):
    parts = shards(size, replicas, remainder="pad")
    seen = flat(by_step(parts))
    assert len(seen) == parts[0].steps * 4 * replicas >= size
    assert set(seen) == set(range(size))
    assert sum(part.samples_per_epoch for part in parts) == len(seen)


def test_the_order_is_another_in_every_epoch_and_the_same_for_a_seed():
    (part,) = shards(64, 1)
    first = [index.tolist() for index in part]
    part.set_epoch(1)
    second = [index.tolist() for index in part]
    part.set_epoch(0)
    assert first != second
    assert first == [index.tolist() for index in part]
    assert first != [index.tolist() for index in shards(64, 1, seed=1)[0]]


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("size", [50, 49, 26, 25])
def test_weighted_gradients_are_the_mean_over_the_global_batch(size, accumulate):
    torch.manual_seed(0)
    inputs, targets = torch.randn(size, 5), torch.randn(size, 1)
    replicas = 4
    parts = shards(size, replicas, batch=2, accumulate=accumulate, remainder="short")

    def gradient(loss):
        model = nn.Linear(5, 1)
        nn.init.constant_(model.weight, 0.1), nn.init.constant_(model.bias, 0.0)
        loss(model).backward()
        return model.weight.grad

    for step, together in enumerate(by_step(parts, accumulate)):
        whole = torch.tensor(together)
        expected = gradient(lambda m, i=whole: nn.functional.mse_loss(m(inputs[i]), targets[i]))
        averaged = torch.zeros(1, 5)
        for part in parts:
            micro = list(part)[step * accumulate : (step + 1) * accumulate]
            for index, weight in zip(micro, part.weights(step), strict=True):
                mine = gradient(
                    lambda m, i=index, w=weight: (
                        w * nn.functional.mse_loss(m(inputs[i]), targets[i])
                    )
                )
                averaged += mine / replicas
        torch.testing.assert_close(averaged, expected)


def test_fewer_samples_than_replicas_are_refused():
    with pytest.raises(SpecError, match="3 samples are too few for 4 replicas"):
        shards(3, 4)


def test_the_embedded_digits_are_split_once_for_all():
    data = load(Source.of("digits"))
    assert (len(data.train), len(data.validation), data.classes) == (1438, 359, 10)
    images, labels = data.train.batch(torch.arange(6), 0)
    images = data.preprocessing.build(torch.device("cpu"))(images)
    assert images.shape == (6, 1, 8, 8) and labels.shape == (6,)
    assert images.stride() == (64, 64, 8, 1), "DDP warns of gradients that lie otherwise"
    assert images.min() >= 0.0 and images.max() == 1.0


def test_the_digits_are_those_of_scikit_learn_wherever_it_keeps_them(monkeypatch):
    quickly = read(Source.of("digits"))
    monkeypatch.setattr("scalewise.frameworks.in_memory_data.find_spec", lambda name: None)
    by_itself = read(Source.of("digits"))
    for one, other in (
        (quickly.train, by_itself.train),
        (quickly.validation, by_itself.validation),
    ):
        assert np.array_equal(one.images, other.images)
        assert np.array_equal(one.labels, other.labels)


@pytest.mark.parametrize("edge", [None, 6, 12])
def test_images_become_the_numbers_that_were_asked_for(edge):
    """On a host; an accelerator does the same in one pass, from bytes on."""
    images, here = torch.randint(0, 256, (3, 8, 8, 3), dtype=torch.uint8), torch.device("cpu")
    finish = Preprocessing(1 / 255, ((0.4, 0.5, 0.6), (0.1, 0.2, 0.3)), edge)
    finished = finish.build(here)(images)
    expected = images.permute(0, 3, 1, 2) / 255
    if edge:
        expected = nn.functional.interpolate(
            expected, (edge, edge), mode="bilinear", antialias=edge < 8
        )
    mean, spread = torch.tensor(finish.mean_std)[:, :, None, None]
    torch.testing.assert_close(finished, (expected - mean) / spread)
    assert torch.equal(finish.build(here, torch.bfloat16)(images), finished.to(torch.bfloat16))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", [(8, 8), (5, 9)])
@pytest.mark.parametrize("edge", [6, 12, 32])
def test_images_are_resized_by_products_as_by_interpolation(channels, shape, edge):
    images = torch.randn(4, *shape, channels).permute(0, 3, 1, 2)
    expected = nn.functional.interpolate(
        images, (edge, edge), mode="bilinear", antialias=edge < max(shape)
    )
    found = resize_by_matmul(images, edge, torch.float32)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected)


def test_small_real_data_lies_on_an_accelerator_and_made_up_data_where_its_name_says(
    tmp_path, monkeypatch
):
    write_idx(tmp_path)

    def lies_there(data, device="meta"):
        source = Source.of(data)
        return load(source).placed(torch.device(device), source).on_device

    assert lies_there(str(tmp_path)) and lies_there("digits")
    assert lies_there("synthetic-on-device:20") and not lies_there("synthetic:20")
    assert not lies_there(str(tmp_path), "cpu")
    monkeypatch.setattr("scalewise.frameworks.torch.input.data_sets.MAX_ON_DEVICE_BYTES", 239)
    assert not lies_there(str(tmp_path)), "12 images of 20 bytes"


def test_synthetic_data_has_the_size_that_was_asked_for():
    data = load(Source.of("synthetic:70x12x16"))
    assert data.train.inputs.shape == (70, 12, 16, 1)
    again = load(Source.of("synthetic:70x12x16"))
    assert torch.equal(data.train.inputs, again.train.inputs)


def write_idx(folder, *, zipped=False, images=6, labels=6):
    """Write the four files of an MNIST-like data set."""
    for name in idx.FILES.values():
        if "images" in name:
            content = struct.pack(">4i", 0x803, images, 5, 4) + bytes(range(20)) * images
        else:
            content = struct.pack(">2i", 0x801, labels) + bytes(n % 3 for n in range(labels))
        path = folder / (name + ".gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)


@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_files_are_read_plain_and_zipped(tmp_path, zipped):
    write_idx(tmp_path, zipped=zipped)
    data = load(Source.of(str(tmp_path)))
    assert data.shape == (1, 5, 4) and data.classes == 3
    assert data.train.inputs[2].flatten().tolist() == list(range(20))
    assert data.train.labels.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("spoil", [lambda b: b[:30], lambda b: b"\0\0\0\0" + b[4:], lambda b: b""])
def test_a_broken_mnist_file_is_named(tmp_path, spoil):
    write_idx(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(SpecError, match="train-images-idx3-ubyte is not a complete"):
        load(Source.of(str(tmp_path)))


def test_images_without_labels_are_refused(tmp_path):
    write_idx(tmp_path, labels=5)
    with pytest.raises(SpecError, match="6 train images and 5 labels"):
        load(Source.of(str(tmp_path)))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("nowhere", "no data nowhere"),
        ("synthetic:0", "synthetic:0"),
        ("tokens:16x16x99999999999", "vocabulary of at most 10,000,000"),
        ("synthetic:", "synthetic:"),
        ("synthetic:10x3", "synthetic:10x3"),
    ],
)
def test_data_that_is_not_there_is_refused(data, says):
    with pytest.raises(SpecError, match=says):
        Source.of(data)


def test_a_folder_that_misses_a_file_says_which(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(SpecError, match="no validation labels: t10k-labels-idx1-ubyte"):
        Source.of(str(tmp_path))


def test_digits_without_scikit_learn_name_the_extra(monkeypatch):
    monkeypatch.setattr(source, "find_spec", lambda name: None)
    with pytest.raises(PluginError) as missing:
        Source.of("digits")
    assert "pip install scikit-learn beside the framework" in missing.value.hint
