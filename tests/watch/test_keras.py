"""From what Keras tells to steps and samples, without Keras; and how its scripts are started."""

import os
import subprocess
import sys

import pytest

from commands import modules_after
from scalewise.errors import SpecError
from scalewise.launch.local import LocalLauncher
from scalewise.launch.program import detect_framework
from scalewise.launch.slurm.batch_script import run_script
from scalewise.launch.slurm.settings import Settings
from scalewise.probe.tensorflow.keras_steps import Execution, Steps, split_samples
from scalewise.record.close import close
from scalewise.record.write import RankFile, write_json
from scalewise.spec import RunSpec
from scalewise.study import from_program
from scalewise.study.load_study import check


class Notebook:
    """A watcher that keeps its rows and spans; the first ``each`` steps are urgent."""

    explicit = False
    done = False

    def __init__(self, each: int, stop: int) -> None:
        self.rows, self.spans, self.batches = [], [], []
        self._each, self._stop = each, stop

    @property
    def steps(self) -> int:
        return len(self.rows)

    @property
    def next_urgent_step(self) -> int:
        return self.steps + 1 if self.steps < self._each else 10**9

    def add_steps(self, rows) -> None:
        self.rows += rows
        self.batches.append(len(rows))
        self.done = 0 < self._stop <= self.steps

    def span(self, name, start, end, **facts) -> None:
        self.spans.append((name, start, end, facts))

    def record_build(self, moment) -> None:
        self.spans.append(("build", 0.0, moment, {}))

    def wall(self, moment) -> float:
        return moment

    def stop_program(self) -> None:
        raise SystemExit(0)

    @property
    def samples(self) -> list[int]:
        return [row[0] for row in self.rows]

    def named(self, name) -> list:
        return [span for span in self.spans if span[0] == name]


class Fit:
    """Tells what Keras would: a second for each batch, a tenth for anything else."""

    def __init__(self, sizes, together=1, per_step=1, known=True, counted=True, each=10, stop=0):
        self.sizes, self.together, self.per_step = sizes, together, per_step
        self.of = len(sizes) if known else None
        self.watcher = Notebook(each, stop)
        self.time, self.seen = 0.0, 0
        self.steps = Steps(self.watcher, now=self.now)
        self.steps.count_samples = lambda: self.seen if counted else None
        self.updates = 0
        self.steps.count_updates = lambda: self.updates // per_step

    def now(self) -> float:
        return self.time

    def epoch(self, validate=True, between=None) -> None:
        self.seen = 0
        self.steps.begin_epoch()
        self.time += 0.1
        end = len(self.sizes) + (0 if self.of else self.together)
        for first in range(0, end, self.together):
            self.steps.begin_execution(Execution(first, self.together, self.of, self.per_step))
            batch = self.sizes[first : first + self.together]
            self.time += len(batch)
            self.seen, self.updates = self.seen + sum(batch), self.updates + len(batch)
            if batch:
                self.steps.report_end(first + self.together - 1)
            if between and first == 0:
                between(self)
        self.time += 0.1
        if validate:
            self.steps.pause()
            self.time, self.seen = self.time + 5, 999
            self.steps.resume("validate")
        self.steps.end_execution()


def fitted(epochs=2, **settings) -> Notebook:
    fit = Fit(**settings)
    for _ in range(epochs):
        fit.epoch()
    fit.steps.finish()
    return fit.watcher


RAGGED = [16] * 6 + [8]


@pytest.mark.parametrize("each", [0, 3, 100])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("together", [1, 2, 3, 7, 9])
def test_steps_and_samples_are_counted_however_many_are_executed_together(together, known, each):
    seen = fitted(sizes=RAGGED, together=together, known=known, each=each)
    assert seen.steps == 14
    assert sum(seen.samples) == 208
    assert len(seen.named("validate")) == len(seen.named("train")) == 2
    assert [span[3] for span in seen.named("train")] == [{"samples": 104, "taken": 7}] * 2


def test_every_step_has_the_samples_of_its_batch():
    assert fitted(sizes=RAGGED).samples == RAGGED * 2
    assert fitted(sizes=RAGGED, together=3, each=0).samples == RAGGED * 2
    assert fitted(sizes=[3, 9, 4], each=100).samples == [3, 9, 4] * 2


def test_steps_executed_together_have_equal_parts_of_the_time_and_end_where_they_were_done():
    (first, *others) = fitted(epochs=1, sizes=RAGGED, together=3).rows
    assert first[1] == ["other", "step"]
    assert first[2] == pytest.approx([0.0, 0.1, 1.1])
    assert all(names == ["step"] for _, names, _, _ in others)
    assert [marks[-1] - marks[0] for _, _, marks, _ in others] == pytest.approx([1.0] * 6)
    assert others[-1][2][-1] == pytest.approx(7.1)  # And not 7.2, when the validation began.


def test_gradients_of_several_batches_make_one_step_even_over_the_end_of_a_pass():
    seen = fitted(sizes=RAGGED, per_step=2)
    assert seen.samples == [32, 32, 32, 8 + 16, 32, 32, 16 + 8]
    names, marks = seen.rows[3][1:3]
    assert names == ["step", "validate", "other", "step"]
    assert marks[-1] - marks[0] - (marks[2] - marks[1]) == pytest.approx(2.1)


def test_a_pass_that_is_not_counted_has_steps_without_samples():
    seen = fitted(sizes=RAGGED, counted=False)
    assert seen.steps == 14 and sum(seen.samples) == 0


def test_an_optimizer_that_does_not_tell_is_not_needed():
    for updates in (lambda: None, lambda: 7):
        fit = Fit(RAGGED, known=False)
        fit.steps.count_updates = updates
        fit.epoch()
        fit.epoch()
        assert fit.watcher.samples == RAGGED * 2


def test_a_metric_that_counts_nothing_is_not_believed():
    fit = Fit(RAGGED)
    fit.steps.count_samples = lambda: 0
    fit.epoch()
    assert fit.watcher.steps == 7 and sum(fit.watcher.samples) == 0


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("together", [1, 3, 9])
@pytest.mark.parametrize("replicas", [1, 2])
def test_one_figure_of_each_batch_in_a_step_of_your_own_is_no_count(replicas, together, known):
    """The metric then tells of replicas and batches, whatever their size."""
    fit = Fit([replicas] * 7, together=together, known=known)
    fit.steps.implausible_samples = replicas
    fit.epoch()
    fit.epoch()
    assert fit.watcher.steps == 14 and sum(fit.watcher.samples) == 0


def test_a_step_of_your_own_that_counts_samples_is_believed_as_keras_is_in_batches_of_one():
    fit = Fit(RAGGED, together=3)
    fit.steps.implausible_samples = 2
    fit.epoch()
    assert fit.watcher.samples == RAGGED
    assert fitted(sizes=[1] * 7).samples == [1] * 14


@pytest.mark.parametrize("each", [0, 100])
def test_a_pass_over_endless_data_takes_whole_executions(each):
    """Keras is asked for seven steps of a pass, four at once, and does eight."""
    fit = Fit([16] * 8, together=4, each=each)
    fit.of = 7
    for _ in range(3):
        fit.epoch()
    assert fit.watcher.steps == fit.updates == 24
    assert fit.watcher.samples == [16] * 24


def test_a_checkpoint_between_two_steps_is_a_pause():
    def save(fit):
        fit.steps.pause()
        fit.steps.pause()
        fit.time += 3
        fit.steps.resume("checkpoint")
        fit.steps.resume("checkpoint")

    fit = Fit(RAGGED)
    fit.epoch(between=save)
    assert [span[1:3] for span in fit.watcher.named("checkpoint")] == [pytest.approx((1.1, 4.1))]
    assert fit.watcher.samples == RAGGED
    assert sum(row[2][-1] - row[2][0] for row in fit.watcher.rows) == pytest.approx(7.1)


def test_it_leaves_before_the_step_after_the_last_that_is_wanted():
    fit = Fit(RAGGED, stop=5)
    with pytest.raises(SystemExit):
        fit.epoch()
    assert fit.watcher.samples == [16] * 5 and fit.time == pytest.approx(5.1)
    fit.steps.finish()
    assert fit.watcher.steps == 5
    assert fit.watcher.named("train")[0][3] == {"samples": 80, "taken": 5}


def test_later_steps_are_told_once_a_second_and_none_is_missed():
    seen = fitted(sizes=[4] * 500, each=10)
    assert seen.steps == 1000 and seen.samples == [4] * 1000
    fast = Fit([4] * 500)
    fast.now = fast.steps._now = lambda: fast.time / 100
    fast.epoch()
    assert fast.watcher.steps == 500
    assert fast.watcher.batches[:10] == [1] * 10 and len(fast.watcher.batches) < 20


@pytest.mark.parametrize("total", [1, 7, 50, 64])
def test_shares_lose_nothing(total):
    for usual in (0, 1, 16):
        assert sum(split_samples(total, 4, usual)) == total


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import tensorflow as tf", "tensorflow"),
        ("from tensorflow.keras import layers", "tensorflow"),
        ("import keras", "tensorflow"),
        ("import keras\nimport torch", ""),
        ("import tensorflow as tf\nimport horovod.tensorflow as hvd", ""),
        ("import torch", ""),
        ("import keras_tuner", ""),
    ],
)
def test_what_a_script_trains_with_is_what_it_imports(text, found, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(text + "\n")
    assert detect_framework([str(path)]) == found
    question = from_program([str(path)], "2")
    assert question.runs()[0].framework == (found or "torch")


def commands(words, folder, on="1x2", **engines):
    from scalewise.launch.interpreters import Interpreters

    (run,) = from_program(words, on).runs()
    return run, LocalLauncher(interpreters=Interpreters.load(engines)).plan([run], folder).commands


def test_a_keras_script_starts_once_per_node_in_its_own_python(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "train.py"
    path.write_text("import keras\n")
    run, (command,) = commands([str(path), "--epochs", "3"], tmp_path, tensorflow="/envs/tf/python")
    assert run.ranks == 1
    assert command.argv == ("/envs/tf/python", str(path), "--epochs", "3")
    assert command.env["RANK"] == "0" and command.env["WORLD_SIZE"] == "1"
    _, (command,) = commands(
        [str(path), "--gpus", "{devices}"], tmp_path, tensorflow="/envs/tf/python"
    )
    assert command.argv == ("/envs/tf/python", str(path), "--gpus", "2")
    run, both = commands([str(path)], tmp_path, on="2x2", tensorflow="/envs/tf/python")
    assert run.ranks == 2 and [each.env["RANK"] for each in both] == ["0", "1"]


def test_in_a_slurm_job_a_task_per_node_starts_it(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import keras\n")
    (run,) = from_program([str(path), "--epochs", "3"], "2x4").runs()
    settings = Settings(engines={"tensorflow": "/envs/tf/python"})
    lines = run_script(run, tmp_path, settings, attempt=1).splitlines()
    assert "#SBATCH --ntasks-per-node=1" in lines
    assert any(line.strip().startswith(f"/envs/tf/python {path} --epochs 3") for line in lines)
    assert not any("torch.distributed.run" in line for line in lines)


def test_a_strategy_cannot_be_said_of_a_program():
    run = {"topology": "1x2", "program": ["train.py"], "framework": "tensorflow"}
    assert RunSpec.from_dict(run).started_by == "node"
    with pytest.raises(SpecError, match="strategy cannot be set for a program"):
        RunSpec.from_dict({**run, "strategy": "mirrored"})


def test_looks_into_pytorch_are_refused():
    run = RunSpec.from_dict(
        {"topology": "1x1", "program": [__file__], "framework": "tensorflow", "trace": 3}
    )
    with pytest.raises(SpecError, match="need PyTorch, and this program trains with tensorflow"):
        check([run], {})


def test_more_devices_than_were_asked_for_are_told(tmp_path):
    file = RankFile(tmp_path, 0, 1)
    file.line({"schema": 1, "rank": 0})
    end = {"ended": 2.0, "launched": 1.0, "guest": True, "world": 1, "taken": 5, "alone": False}
    file.line({**end, "devices": 4, "asked": 2})
    cause = close(tmp_path, attempt=1, world=1, ended=3.0)
    assert cause == "the program used 4 devices, but 2 were requested"


BROKEN = """
from types import SimpleNamespace
from scalewise.watch import keras_patch as patch

class Model:
    def fit(self, x, callbacks=None):
        return x, callbacks
    def evaluate(self, x):
        return x
    def save(self, path):
        return path
    save_weights = save

backend = SimpleNamespace(backend=lambda: "tensorflow")
patch.on_import("keras", SimpleNamespace(Model=Model, backend=backend))
model = Model()
assert [model.fit(3), model.fit(x=4, callbacks=[5]), model.save("there"), model.evaluate(7)] == [
    (3, None), (4, [5]), "there", 7
]
"""


def test_where_watching_fails_training_goes_on_and_it_is_told_once(tmp_path):
    """Here is no Keras for the callback to be made of."""
    write_json(tmp_path / "spec.json", {"topology": "1x1", "program": ["train.py"]})
    env = {**os.environ, "SCALEWISE_RUN": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], env=env, check=True, capture_output=True, text=True
    )
    assert done.stderr.count("scalewise: watching stopped: ModuleNotFoundError") == 1


def test_the_callback_is_looked_for_only_when_it_is_asked_for():
    loaded = modules_after(
        "import scalewise.frameworks.tensorflow as t; assert not hasattr(t, 'Look')"
    )
    assert not loaded & {"tensorflow", "keras", "numpy"}
