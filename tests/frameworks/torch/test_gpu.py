"""What only an accelerator can show: device events, NCCL, reserved memory, two ranks on one card.

Needs a CUDA device; run it with ``pytest -m gpu tests/frameworks/torch/test_gpu.py``.
"""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import watch_script
from scalewise import results
from scalewise.api import run
from scalewise.frameworks.data.make_data import Recipe, make_data_set
from scalewise.frameworks.torch.input.data_sets import Preprocessing
from scalewise.probe.torch.device import prefer_cudnn_attention
from scalewise.record.read import read_run
from scalewise.spec import StudySpec
from watched_scripts import Script

pytestmark = pytest.mark.gpu


def a_gpu_run(folder, **changes):
    """Run the small network on the card and return its record and its point."""
    assert torch.cuda.is_available(), "these tests need a CUDA device"
    base = {"workload": "mnist-cnn", "data": "synthetic:20000", "batch": 256}
    length = {} if "steps" in changes else {"epochs": 3}
    values = {"name": "gpu", "run": {**base, **length, **changes}}
    topology = values["run"].pop("topology", "1x1")
    question = StudySpec.from_dict({**values, "vary": {"topology": [topology]}})
    home = run(question, folder)
    (curve,) = results.curves([home])
    (spec,) = question.runs()
    return read_run(home / spec.id, spec), curve.points[0]


def test_one_rank_trains_over_nccl_and_its_steps_are_timed_on_the_device(tmp_path):
    record, point = a_gpu_run(tmp_path)
    rank = record.ranks[0]
    assert rank.notes.backend == "nccl"
    assert rank.notes.device == torch.cuda.get_device_name(0)
    trained = sum(span.end - span.start for span in rank.spans if span.name == "train")
    assert rank.steps.seconds.sum() == pytest.approx(trained, rel=0.05)
    assert set(rank.steps.phases) == {"input", "forward", "backward", "optimizer"}
    assert 20e6 < point.memory.value < 20e9
    assert point.accuracy.value > 0.9


def test_two_ranks_share_one_card_over_gloo(tmp_path):
    record, point = a_gpu_run(tmp_path, topology="1x2", backend="gloo")
    assert {rank.notes.device for rank in record.ranks} == {torch.cuda.get_device_name(0)}
    assert point.devices == 2
    assert point.accuracy.value > 0.9


def test_more_ranks_than_cards_are_refused_by_name(tmp_path):
    count = torch.cuda.device_count()
    with pytest.raises(
        RuntimeError, match=f"local rank {count} has no device: {count} are visible"
    ):
        a_gpu_run(tmp_path, topology=f"1x{count + 1}")


def test_compiling_is_a_part_of_the_jobs_life_and_bf16_learns(tmp_path):
    record, point = a_gpu_run(tmp_path, compile=True, precision="bf16")
    assert point.complete["compile"].value > 0.1
    first, later = record.ranks[0].steps.seconds[2:10].mean(), record.ranks[0].steps.seconds[80:]
    assert first < 20 * later.mean()  # Nothing is compiled inside the epochs.
    assert point.accuracy.value > 0.9


@pytest.mark.parametrize(
    "said",
    [
        {"workload": "mnist-cnn", "topology": "1x2", "backend": "gloo"},
        {"workload": "vit", "options": {"width": 1280, "heads": 8, "depth": 2}},
    ],
)
def test_a_step_that_is_recorded_once_and_replayed_learns_the_same(tmp_path, said):
    """With gradients that are exchanged, and with norms that are made in two ways."""
    said = {"batch": 64, "steps": 30, "lr": 1e-3, "ema": 0.9, "clip": 1.0, **said}
    said["precision"] = "bf16"
    runs = {how: a_gpu_run(tmp_path / str(how), compile=how, **said) for how in (True, "graphs")}
    assert "cannot be CUDA graphs" not in next(tmp_path.glob("graphs/*/log.txt")).read_text()
    once, again = (losses_of(record) for record, _ in runs.values())
    assert len(again) == 30 and sum(again[-5:]) < sum(again[:5])
    assert again == pytest.approx(once, rel=0.05)


def test_a_script_of_others_is_timed_by_the_device_and_not_by_the_host_that_runs_ahead(tmp_path):
    """Without a wait in its loop the host only asks: the device's own marks tell the pace."""
    script = Script(path="heavy.py", truth=lambda world: None, args=(
        "--device", "cuda", "--width", "4096", "--depth", "8", "--steps", "200"))  # fmt: skip
    ranks, cause = watch_script.run(script, 1, tmp_path)
    assert cause == ""
    (curve,) = results.curves([tmp_path / "study"])
    seconds = ranks[0].column("seconds")[50:]
    pace = 32 / (sum(seconds) / len(seconds))
    assert curve.points[0].throughput.value == pytest.approx(pace, rel=0.1)


def losses_of(record):
    """Return every loss that rank 0 wrote down."""
    return [loss for line in record.ranks[0].lines if "losses" in line for loss in line["losses"]]


def test_images_travel_ahead_and_teach_the_same_whoever_loads_them(tmp_path):
    make_data_set(Recipe(tmp_path / "images", 64, images=256, classes=4), lambda done, total: None)
    given = {"data": str(tmp_path / "images"), "edge": 48, "augment": "crop", "batch": 32}
    alone, pool = (
        a_gpu_run(tmp_path / f"workers-{workers}", workers=workers, **given) for workers in (0, 2)
    )
    first = slice(8)  # An epoch; later the order in which a card adds up is seen.
    assert losses_of(alone[0])[first] == pytest.approx(losses_of(pool[0])[first], rel=1e-3)
    assert alone[1].accuracy.value > 0.9


def test_bytes_become_numbers_on_a_card_as_on_a_host():
    images = torch.randint(0, 256, (3, 8, 8, 3), dtype=torch.uint8)
    finish = Preprocessing(1 / 255, ((0.4, 0.5, 0.6), (0.1, 0.2, 0.3)))
    host, card = torch.device("cpu"), torch.device("cuda")
    there = finish.build(card, torch.bfloat16)(images.to(card))
    assert there.is_contiguous(memory_format=torch.channels_last)
    expected = finish.build(host)(images)
    torch.testing.assert_close(there.cpu().float(), expected, rtol=2**-8, atol=1e-6)


def test_images_are_enlarged_on_a_card_as_on_a_host():
    images = torch.randint(0, 256, (3, 8, 8, 3), dtype=torch.uint8)
    finish = Preprocessing(1 / 255, ((0.4, 0.5, 0.6), (0.1, 0.2, 0.3)), 32)
    host, card = torch.device("cpu"), torch.device("cuda")
    expected = finish.build(host)(images)
    there = finish.build(card)(images.to(card))
    torch.testing.assert_close(there.cpu(), expected)
    half = finish.build(card, torch.bfloat16)(images.to(card))
    assert half.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(half.cpu().float(), expected, rtol=2**-7, atol=2**-5)


def test_small_real_data_lies_on_the_device_and_is_learnt(tmp_path):
    _, point = a_gpu_run(tmp_path, data="digits", edge=28, batch=32, epochs=8, workers=2)
    assert "is on the device" in next(tmp_path.glob("*/log.txt")).read_text()
    assert point.accuracy.value > 0.9


def test_what_lies_on_the_device_is_learnt_without_travelling(tmp_path):
    _, point = a_gpu_run(tmp_path, data="synthetic-on-device:20000x28x28x3")
    assert point.accuracy.value > 0.9


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0),
    reason="older devices keep the kernel that PyTorch takes",
)
def test_attention_is_computed_by_the_kernel_that_fits():
    heads = torch.randn(2, 4, 257, 80, device="cuda", dtype=torch.bfloat16)
    with prefer_cudnn_attention(heads.device), torch.profiler.profile(acc_events=True) as seen:
        scaled_dot_product_attention(heads, heads, heads)
    assert any("cudnn" in each.key for each in seen.key_averages())


@pytest.mark.parametrize(
    "said",
    [
        {"workload": "mnist-cnn", "compile": True},
        {
            "workload": "vit",
            "compile": "blocks",
            "precision": "bf16",
            "options": {"width": 1280, "heads": 16, "depth": 2},
        },
    ],
    ids=["small", "wide"],
)
def test_a_second_run_of_a_study_finds_what_the_first_compiled(tmp_path, said):
    base = {"data": "synthetic:2000", "batch": 256, "epochs": 1, **said}
    values = {"name": "twice", "run": base, "vary": {"topology": ["1x1"]}}
    question = StudySpec.from_dict({**values, "repeats": 2})
    home = run(question, tmp_path)
    ranks = [read_run(home / spec.id, spec).ranks[0] for spec in question.runs()]
    first, again = (rank.notes.compiled_graphs for rank in ranks)
    assert first["made"] > 0
    assert again == {"found": first["made"], "made": 0}
