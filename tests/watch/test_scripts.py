"""Scripts in the styles people write them, untouched, under the watcher.

``support/watched_scripts.py`` holds what each of them does, by arithmetic; here it is
compared with what was seen: every step's samples on every rank, the phases,
the passes of validation and the checkpoints. None has a fault that a guard would tell.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import run_command
from scalewise import results
from scalewise.analysis.conservation import conservation_doubts
from scalewise.analysis.explain.guards import run_guards
from scalewise.analysis.simulate import make_exchange, parse_link, simulate_curve
from scalewise.record.read import RunRecord
from scalewise.report.text.doubts import warning_text
from start_ranks import start
from watch_script import Seen, run, seen
from watched_scripts import HERE, SCRIPTS, Script

pytestmark = [pytest.mark.scripts, pytest.mark.timeout(180)]

SEEN = [s for s in SCRIPTS if s.truth(2).recognised or "compiled" in s.name]
WHOLE = [s for s in SEEN if s.truth(2).exit == 0 and any(s.truth(2).samples)]


def named(words: str) -> Script:
    return next(script for script in SCRIPTS if script.name == words)


PLAIN = named("plain.py")
"""It runs where it is shown that it is not distributed."""


def _devices(script: Script) -> int:
    return 2 if script.truth(2).distributed else 1


@pytest.mark.parametrize(
    "script",
    [pytest.param(s, marks=pytest.mark.soak) if s.slow else s for s in WHOLE if s is not PLAIN],
    ids=lambda script: script.name,
)
def test_steps_samples_phases_and_pauses_are_those_of_the_script(script, tmp_path):
    assert not script.needs or importlib.util.find_spec(script.needs), f"install {script.needs}"
    ranks, cause = run(script, _devices(script), tmp_path)
    assert cause == ""
    as_it_is(script, ranks)
    ((curve, records),) = results.curves_with_records(tmp_path / "study")
    without_fault(script, records)
    assert conservation_doubts(records) == []
    truth = script.truth(_devices(script))
    if truth.epochs and curve.samples_per_epoch:  # Unknown where no loader has a length.
        assert curve.samples_per_epoch * truth.epochs == sum(truth.samples)


def as_it_is(script: Script, ranks: list[Seen]) -> None:
    """Require that what was seen is what the script does."""
    devices = len(ranks)
    truth = script.truth(devices)
    assert [rank.find("unwatched") for rank in ranks] == [None] * devices
    assert tuple(tuple(rank.column("samples")) for rank in ranks) == truth.step_samples
    assert tuple(len(rank.spans("validate")) for rank in ranks) == truth.validations
    assert max(len(rank.spans("checkpoint")) for rank in ranks) == truth.checkpoints
    there = {name for rank in ranks for name, seconds in rank.phases.items() if seconds > 0}
    assert truth.phases - {"validate", "checkpoint"} <= there
    for rank in ranks:
        columns = [rank.column(name) for name in ("seconds", "at")]
        for seconds, *phases in zip(columns[0], *_phases(rank)):
            assert sum(phases) == pytest.approx(seconds, abs=1e-5)


def without_fault(script: Script, records: list[RunRecord]) -> None:
    """Require that no guard tells of a fault that the script does not have."""
    found = {each.name: each.kind for each in run_guards(records)}
    uneven = len(set(script.truth(_devices(script)).steps)) > 1
    wrong = {name for name, kind in found.items() if kind == "correct"}
    assert wrong == ({"step counts"} if uneven else set())
    absent = {"DataParallel", "empty cache"}
    absent |= {"loader workers"} if script.path == "workers.py" else set()
    absent |= {"compile"} if script.path == "compiled.py" else set()
    absent |= {"unused parameters"} if script.needs != "transformers" else set()
    assert absent.isdisjoint(found)


def _phases(rank):
    """Return the columns of all phases, 0 where a step had none."""
    names = list(rank.phases)
    rows = [
        [line["each"].get(name, [0.0] * len(line["index"])) for name in names]
        for line in rank.lines
        if "each" in line
    ]
    return [[value for row in rows for value in row[place]] for place in range(len(names))]


def test_a_script_that_is_not_distributed_is_measured_on_one_device(tmp_path):
    done = run_command("run", "--on", "1,2", "--", HERE / "plain.py", cwd=tmp_path)
    assert done.returncode == 3
    assert "error: run " in done.stderr and "not distributed" in done.stderr
    assert f"hint: its log is {tmp_path}" in done.stderr and "`scalewise port " in done.stderr
    ((curve, records),) = results.curves_with_records(tmp_path / "runs" / "plain")
    assert [point.devices for point in curve.points] == [1]
    assert any("not distributed" in text for text in map(warning_text, curve.warnings))
    as_it_is(PLAIN, [seen(records[0].folder, 0)])
    without_fault(PLAIN, records)
    links = make_exchange(inside=parse_link("10GB/s,20us"))
    ahead = simulate_curve(curve, records, [8], links, per_node=8)
    assert ahead.work.size == 4 * records[0].ranks[0].notes.facts.parameters
    assert ahead.points[0].step > ahead.one_device_step.step


def test_ranks_that_exchange_no_gradient_are_told(tmp_path):
    script = HERE / "faults" / "drifting_replicas.py"
    done = run_command("run", "--on", "2", "-o", "there", "--", script, cwd=tmp_path)
    assert done.returncode == 0
    assert "no gradient was exchanged: every process trains alone" in done.stderr
    (curve,) = results.curves([tmp_path / "there"])
    assert [doubt.code for doubt in curve.doubts if doubt.severity == "blocks"] == ["no-exchange"]


@pytest.mark.parametrize(
    "script",
    [
        "allreduce.py",
        *(pytest.param(n, marks=pytest.mark.soak) for n in ("no_sync.py", "fsdp2.py")),
    ],
)
def test_an_exchange_is_seen_however_it_is_made(script, tmp_path):
    ranks, _ = run(named(script), 2, tmp_path, stop_after=6)
    for rank in ranks:
        assert rank.find("facts")["exchanged"] or rank.find("facts")["sharded"]


@pytest.mark.parametrize(
    ("ending", "devices", "words"),
    [
        # The exit code follows, unless torchrun's own report does not have it.
        ("crash", 2, "failed after step 7: DataCorrupted: shard 3 cannot be read at step 7"),
        pytest.param("killed", 2, "was killed by SIGKILL after step 7", marks=pytest.mark.soak),
        pytest.param("exit", 1, "ended with code 3", marks=pytest.mark.soak),
        pytest.param(
            "no-step", 1, "no training step of the program was observed", marks=pytest.mark.soak
        ),
    ],
)
def test_a_program_that_fails_says_how(ending, devices, words, tmp_path):
    ranks, cause = run(named(f"endings.py --end {ending}"), devices, tmp_path)
    assert words in cause
    if ending != "no-step":
        assert [len(rank.column("samples")) for rank in ranks if rank.lines][-1] == 7


def test_a_crash_before_the_first_step_of_a_shell_command_is_told(tmp_path):
    (tmp_path / "crash.py").write_text("import torch\nraise ValueError('no data at /nowhere')\n")
    command = f"{sys.executable} {tmp_path / 'crash.py'}"
    done = run_command("run", "--on", "1", "--", "sh", "-c", command, cwd=tmp_path)
    assert done.returncode == 3
    assert (
        "the program ended before its first training step: a process ended with code 1; "
        "the log ends: ValueError: no data at /nowhere"
    ) in done.stderr


SPAWNED_TWICE = """
import os, time, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn

def train(rank, port):
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(25):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).sum().backward()
        optimizer.step()
    time.sleep(0.1)  # PyTorch's Gloo may abort the process otherwise.
    dist.destroy_process_group()

if __name__ == "__main__":
    import socket
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        mp.spawn(train, (port,), nprocs=2)
"""


def test_a_second_spawn_is_told(tmp_path):
    path = tmp_path / "twice.py"
    path.write_text(SPAWNED_TWICE)
    ranks, cause = run(Script(path=str(path), args=("{devices}",), truth={}), 2, tmp_path)
    assert cause == ""
    assert [len(rank.column("samples")) for rank in ranks] == [25, 25]
    (curve,) = results.curves([tmp_path / "study"])
    assert "later-training" in [doubt.code for doubt in curve.doubts]


LOCAL_SGD = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for step in range(1, 44):
    optimizer.zero_grad()
    (model(torch.randn(16, 8)) ** 2).mean().backward()
    optimizer.step()
    if step % EVERY == 0:
        with torch.no_grad():
            for weight in AVERAGED:
                dist.all_reduce(weight)
                weight /= 2
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("averaged", "codes"),
    [
        ("model.parameters()", ["local-sgd"]),
        pytest.param("[torch.zeros(1)]", ["drift"], marks=pytest.mark.soak),
    ],
)
def test_weights_that_are_averaged_now_and_then_are_no_fault(averaged, codes, tmp_path):
    path = tmp_path / "local.py"
    path.write_text(LOCAL_SGD.replace("AVERAGED", averaged).replace("EVERY", "5"))
    _, cause = run(Script(path=str(path), truth={}), 2, tmp_path)
    assert cause == ""
    (curve,) = results.curves([tmp_path / "study"])
    found = [doubt.code for doubt in curve.doubts]
    assert [code for code in found if code in ("local-sgd", "drift", "no-exchange")] == codes


@pytest.mark.parametrize(
    ("devices", "processes"), [pytest.param(1, "2", marks=pytest.mark.soak), (2, "{devices}")]
)
def test_processes_that_train_each_alone_as_one_rank_are_told_apart(devices, processes, tmp_path):
    script = Script(
        path="hogwild.py", args=("--processes", processes), truth=named("plain.py").truth
    )
    _, cause = run(script, devices, tmp_path, stop_after=20)
    assert "failed: 2 processes trained as rank 0, each alone: they are not distributed" in cause


def test_a_loop_that_updates_its_weights_by_hand_stops_and_says_so(tmp_path):
    ranks, cause = run(named("by_hand.py"), 1, tmp_path, stop_after=12, samples_per_step=200)
    assert cause == ""
    assert ranks[0].column("samples") == [200] * 12
    (curve,) = results.curves([tmp_path / "study"])
    texts = [warning_text(warning) for warning in curve.warnings]
    assert any("updates its weights without an optimizer" in text for text in texts)


def test_steps_are_counted_where_no_sample_is_seen_until_somebody_says_how_many(tmp_path):
    _, cause = run(named("by_hand.py"), 1, tmp_path)
    assert cause == ""
    (curve,) = results.curves([tmp_path / "study"])
    (point,) = curve.points
    assert curve.rate_unit == "steps/s" and point.samples == 30 and point.global_batch is None
    assert "samples-unknown" in [doubt.code for doubt in curve.doubts]
    explained = results.explanations(tmp_path / "study")
    assert explained[0].points[0].devices == 1
    (stated,) = results.curves([tmp_path / "study"], samples_per_step=200)
    assert stated.rate_unit == "samples/s" and stated.points[0].global_batch == 200
    assert stated.points[0].throughput.value == pytest.approx(200 * point.throughput.value)
    assert "samples-unknown" not in [doubt.code for doubt in stated.doubts]
    for verb in ("summary", "measure", "explain"):
        done = run_command(verb, tmp_path / "study", cwd=tmp_path)
        assert "[samples-unknown]" in "".join(done.stdout.splitlines(keepends=True)[:5]), verb
        stated = run_command(verb, tmp_path / "study", "--samples-per-step", 200, cwd=tmp_path)
        assert stated.returncode == 0 and "samples-unknown" not in stated.stdout


def test_a_program_may_make_its_process_group_again_and_again(tmp_path):
    """Without a pause before the group is destroyed, PyTorch 2.13 hangs after a few rounds."""
    path = tmp_path / "rounds.py"
    path.write_text(
        "import os, torch\n"
        "import torch.distributed as dist\n"
        "from torch.nn.parallel import DistributedDataParallel\n"
        "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "def train(number):\n"
        "    place = f'file://{os.path.dirname(__file__)}/group{number}'\n"
        "    dist.init_process_group('gloo', init_method=place, rank=rank, world_size=world)\n"
        "    model = DistributedDataParallel(torch.nn.Linear(8, 2))\n"
        "    learner = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    model(torch.randn(4, 8)).sum().backward()\n"
        "    learner.step()\n"
        "    parts = [torch.zeros(4) for _ in range(world)]\n"
        "    dist.all_gather(parts, torch.ones(4))\n"
        "    dist.destroy_process_group()\n"
        "for number in range(30):\n"
        "    train(number)\n"
    )
    ranks, cause = run(Script(path=str(path), truth={}), 2, tmp_path)
    assert cause == ""
    assert all(rank.column("samples") for rank in ranks)


@pytest.mark.parametrize("told", [None, pytest.param(2, marks=pytest.mark.soak)])
def test_calls_that_may_be_parts_of_one_sample_are_told(told, tmp_path):
    path = tmp_path / "words.py"
    path.write_text(
        "import torch\n"
        "cell = torch.nn.GRUCell(4, 4)\n"
        "learner = torch.optim.SGD(cell.parameters(), lr=0.1)\n"
        "for _ in range(5):\n"
        "    state = torch.zeros(2, 4)\n"
        "    for word in torch.randn(6, 2, 4):\n"
        "        state = cell(word, state)\n"
        "    state.sum().backward()\n"
        "    learner.step()\n"
    )
    ranks, cause = run(Script(path=str(path), truth={}), 1, tmp_path, samples_per_step=told)
    assert cause == ""
    assert ranks[0].column("samples") == [told or 12] * 5
    (curve,) = results.curves([tmp_path / "study"])
    codes = [doubt.code for doubt in curve.doubts]
    assert ("calls-added" in codes) == (told is None)


BAGS = (
    "import torch\n"
    "from torch import nn\n"
    "from torch.utils.data import DataLoader\n"
    "class Bags(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.bag, self.out = nn.EmbeddingBag(100, 8), nn.Linear(8, 4)\n"
    "    def forward(self, text, offsets):\n"
    "        return self.out(self.bag(text, offsets))\n"
    "texts = [torch.randint(100, (5 + place % 7,)) for place in range(500)]\n"
    "def collate(texts):\n"
    "    ends = torch.tensor([len(text) for text in texts]).cumsum(0)\n"
    "    offsets = torch.cat([torch.tensor([0]), ends[:-1]])\n"
    "    return torch.randint(4, (len(texts),)), torch.cat(texts), offsets\n"
    "model = Bags()\n"
    "learner = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for _ in range(3):\n"
    "    for label, text, offsets in DataLoader(texts, 64, shuffle=True, collate_fn=collate):\n"
    "        nn.functional.cross_entropy(model(text, offsets), label).backward()\n"
    "        learner.step()\n"
    "        learner.zero_grad()\n"
)
GRAPHS = (
    "import torch\n"
    "from torch import nn\n"
    "from torch.utils.data import DataLoader\n"
    "class Batch:\n"
    "    def __init__(self, graphs):\n"
    "        sizes = torch.tensor([len(graph) for graph in graphs])\n"
    "        self.x, self.num_graphs = torch.cat(graphs), len(graphs)\n"
    "        self.batch = torch.repeat_interleave(torch.arange(len(graphs)), sizes)\n"
    "class Nodes(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.out = nn.Linear(7, 2)\n"
    "    def forward(self, x, batch, graphs):\n"
    "        return self.out(torch.zeros(graphs, 7).index_add_(0, batch, x))\n"
    "graphs = [torch.randn(10 + place % 17, 7) for place in range(150)]\n"
    "model = Nodes()\n"
    "learner = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for _ in range(4):\n"
    "    for data in DataLoader(graphs, 32, shuffle=True, collate_fn=Batch):\n"
    "        model(data.x, data.batch, data.num_graphs).square().mean().backward()\n"
    "        learner.step()\n"
    "        learner.zero_grad()\n"
)


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        pytest.param(BAGS, ([64] * 7 + [52]) * 3, id="bags"),
        pytest.param(GRAPHS, ([32] * 4 + [22]) * 4, id="graphs", marks=pytest.mark.soak),
    ],
)
def test_tokens_and_nodes_in_a_row_are_no_samples(text, samples, tmp_path):
    path = tmp_path / "rows.py"
    path.write_text(text)
    ranks, cause = run(Script(path=str(path), truth={}), 1, tmp_path)
    assert cause == ""
    assert ranks[0].column("samples") == samples


@pytest.mark.parametrize("told", [None, pytest.param(10, marks=pytest.mark.soak)])
def test_ranks_that_hold_parts_of_one_model_share_its_samples(told, tmp_path):
    path = tmp_path / "parts.py"
    path.write_text(
        "import os\n"
        "import torch\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel\n"
        "from torch.distributed.tensor.parallel import parallelize_module\n"
        "mesh = init_device_mesh('cpu', (int(os.environ['WORLD_SIZE']),))\n"
        "torch.manual_seed(0)\n"
        "model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.Linear(32, 5))\n"
        "parallelize_module(model, mesh, {'0': ColwiseParallel(), '1': RowwiseParallel()})\n"
        "learner = torch.optim.AdamW(model.parameters(), lr=0.25)\n"
        "for place in range(10):\n"
        "    torch.manual_seed(place)\n"
        "    model(torch.rand(20, 10)).sum().backward()\n"
        "    learner.step()\n"
        "torch.distributed.destroy_process_group()\n"
    )
    _, cause = run(Script(path=str(path), truth={}), 2, tmp_path, samples_per_step=told)
    assert cause == ""
    ((curve, records),) = results.curves_with_records(tmp_path / "study")
    assert curve.points[0].global_batch == 20
    assert curve.points[0].samples == 200
    texts = [warning_text(warning) for warning in curve.warnings]
    assert sum("those count once" in text for text in texts) == (told is None)
    assert {each.kind for each in run_guards(records)} == {"tune"}


def test_gradients_that_no_weight_follows_are_no_training(tmp_path):
    path = tmp_path / "attack.py"
    path.write_text(
        "import torch\n"
        "model = torch.nn.Linear(8, 4)\n"
        "for _ in range(5):\n"
        "    image = torch.randn(16, 8, requires_grad=True)\n"
        "    model(image).sum().backward()\n"
        "    model.zero_grad()\n"
    )
    ranks, cause = run(Script(path=str(path), truth=PLAIN.truth), 1, tmp_path / "there")
    assert "no training step of the program was observed" in cause
    assert ranks[0].column("samples") == []


def test_steps_that_nobody_can_see_are_told_in_three_lines(tmp_path):
    text = (HERE / "by_hand.py").read_text()
    assert "scalewise" not in text
    ranks, cause = run(Script(path=str(_told(tmp_path)), truth=named("by_hand.py").truth), 1,
                       tmp_path / "there")  # fmt: skip
    assert cause == ""
    assert ranks[0].column("samples") == [20] * 6
    (train,) = ranks[0].spans("train")
    assert 0 < train["end"] - train["start"] < 60
    plain = subprocess.run([sys.executable, tmp_path / "told.py"], timeout=60, check=True)
    assert plain.returncode == 0


def _told(folder: Path) -> Path:
    path = folder / "told.py"
    path.write_text(
        "from scalewise import probe\n"
        "for step in range(6):\n"
        "    sum(range(10_000))\n"
        "    probe.lap('forward')\n"
        "    probe.step(samples=20)\n"
    )
    return path


def test_the_losses_are_the_same_bits_with_and_without_watching(tmp_path):
    (tmp_path / "losses.py").write_text(LOSSES)
    code, said = start(2, "losses.py", cwd=tmp_path)
    assert code == 0, said
    bare = (tmp_path / "losses.json").read_text()
    (tmp_path / "losses.json").unlink()
    done = run_command("run", "--on", "2", "--", "losses.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    watched = (tmp_path / "losses.json").read_text()
    assert len(json.loads(bare)) == 60
    assert watched == bare


LOSSES = """
import json, os, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(480, 20), torch.randint(0, 5, (480,)))
model = nn.Sequential(nn.Linear(20, 64), nn.Dropout(0.2), nn.ReLU(), nn.Linear(64, 5))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters())
sampler = DistributedSampler(data)
losses = []
for epoch in range(4):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, 16, sampler=sampler):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
if dist.get_rank() == 0:
    json.dump(losses, open("losses.json", "w"))
dist.destroy_process_group()
"""


def test_a_failing_watcher_lets_the_training_go_on(tmp_path):
    """As if there were a bug in it that shows after ten steps that are alike."""
    script = tmp_path / "train.py"
    script.write_text("import torch\n" + BUG + LOSSES)
    done = run_command("run", "--on", "1", "--", "train.py", cwd=tmp_path)
    assert done.returncode == 0
    assert len(json.loads((tmp_path / "losses.json").read_text())) == 120
    (log,) = tmp_path.glob("runs/train/*/log.txt")
    assert log.read_text().count("watching stopped: ZeroDivisionError") == 1
    (curve,) = results.curves([log.parent.parent])
    assert any("watching stopped" in text for text in map(warning_text, curve.warnings))


BUG = """
from itertools import count
from scalewise.watch.torch.observer import Observer
calls, repeat = count(), Observer.repeat
Observer.repeat = lambda self, *words: repeat(self, *words) if next(calls) < 10 else 1 / 0
"""
