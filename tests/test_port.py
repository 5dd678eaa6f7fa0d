"""Porting: what is found in a script, the patch, and that the ported script trains alike."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scalewise.cli import main
from scalewise.errors import SpecError
from scalewise.port import port
from scalewise.port.patch import Edit, Source, edited, unified

SERIAL = Path(__file__).parent / "serial"
CLOSE = {"flat": 1e-4, "functions": 1e-4, "inline": 1e-4, "split": 0.1, "trainer": 0.15}
"""How near two ranks come to the serial loss, as a share of it: those that shuffle see
another order, the others differ by rounding alone."""
MISSING = {
    "flat": "missing, not needed, missing, not needed, missing, missing",
    "functions": "missing, missing, missing, there, missing, missing",
    "inline": "missing, missing, missing, there, missing, not needed",
    "split": "missing, missing, missing, there, missing, missing",
    "trainer": "missing, missing, missing, there, missing, missing",
    "batches": "missing, not needed, by hand, not needed, missing, missing",
}
LOOP = """import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = {loader}
for epoch in range(2):
    for x, y in loader:
        loss = (model(x) - y).abs().mean()
        loss.backward()
        optimizer.step()
"""
DISTRIBUTED = """import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = torch.nn.Linear(4, 1).to(device)
    ddp_model = DDP(model)
    opt = torch.optim.SGD(ddp_model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = (ddp_model(x) - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "m.pt")
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
BY_HAND = {
    "DataLoader(data, sampler=WeightedRandomSampler(w, 9))": "a sampler of its own",
    "DataLoader(*everything)": "given by position",
    "{k: DataLoader(data[k], 4) for k in 'ab'}['a']": "it cannot be seen which loader trains",
    "zip(x.split(4), y.split(4))": "not made by a DataLoader",
}


def states(ported):
    return ", ".join(step.state for step in ported.steps)


def ported_text(tmp_path, text):
    path = tmp_path / "train.py"
    path.write_text(text)
    return port(path).text.decode()


@pytest.fixture
def scalewise(tmp_path, monkeypatch, capfd):
    """Give a command as a shell would, in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def give(*words):
        monkeypatch.setattr(sys, "argv", ["scalewise", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return give


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("tool", ["patch", "git"])
def test_the_patch_applies_and_nothing_is_left_to_do(name, tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Path(shutil.copy(SERIAL / f"{name}.py", "train.py"))
    ported = port(script)
    assert states(ported) == MISSING[name]
    argv = {"patch": ["patch", "-p1", "--fuzz=0"], "git": ["git", "apply", "-"]}[tool]
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    subprocess.run(argv, input=ported.patch.encode(), check=True)
    assert script.read_bytes() == ported.text
    compile(ported.text, "train.py", "exec")
    again = port(script)
    assert again.patch == ""
    assert "missing" not in states(again)


def test_only_lines_that_change_are_touched():
    before = (SERIAL / "trainer.py").read_text().splitlines()
    after = port(SERIAL / "trainer.py").text.decode().splitlines()
    changed = [line for line in before if line not in after]
    assert len(changed) == 9
    assert 'so far""",' in after


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Every script run alone, ported and run alone, and ported on two ranks: what each printed."""
    home = tmp_path_factory.mktemp("port")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    for each in CLOSE:
        for kind in ("serial", "one", "two"):
            (home / kind).mkdir(exist_ok=True)
            shutil.copy(SERIAL / f"{each}.py", home / kind)
            if kind != "serial":
                port(home / kind / f"{each}.py").write(home / kind / f"{each}.py")
    # One interpreter runs all that is serial: starting PyTorch takes longer than training.
    alone = "import contextlib, os, runpy, sys\nfor path in sys.argv[1:]:\n" + (
        "    folder, name = os.path.split(path); os.chdir(folder); sys.argv = [name]\n"
        "    with open(name + '.txt', 'w') as out, contextlib.redirect_stdout(out):\n"
        "        with contextlib.suppress(SystemExit):\n"
        "            runpy.run_path(name, run_name='__main__')\n"
    )
    paths = [home / kind / f"{each}.py" for kind in ("serial", "one") for each in CLOSE]
    run = {"env": environment, "check": True, "timeout": 120}
    subprocess.run([sys.executable, "-c", alone, *paths], cwd=home, **run)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--local-addr=localhost", "--nproc-per-node=2"]
    for each in CLOSE:
        with (home / "two" / f"{each}.py.txt").open("w") as out:
            subprocess.run([*torchrun, f"{each}.py"], cwd=home / "two", stdout=out, **run)
    return home


def final_loss(path):
    return float(re.search(r"^final loss ([\d.]+)", path.read_text(), re.M)[1])


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CLOSE)
def test_the_ported_script_reaches_the_serial_loss_and_prints_once(name, trained):
    serial, one, two = (trained / kind / f"{name}.py.txt" for kind in ("serial", "one", "two"))
    expected = pytest.approx(final_loss(serial), rel=CLOSE[name])
    assert final_loss(one) == expected
    assert final_loss(two) == expected
    lines = [len(path.read_text().splitlines()) for path in (serial, one, two)]
    assert lines == [lines[0]] * 3


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_what_two_ranks_save_has_the_serial_names(trained):
    import torch

    names = [list(torch.load(trained / kind / "flat.pt")) for kind in ("serial", "one", "two")]
    assert names == [["weight", "bias"]] * 3
    saved = torch.load(trained / "two" / "trainer.pt")
    assert list(saved["model"]) == list(torch.load(trained / "serial" / "trainer.pt")["model"])
    weights = [torch.load(trained / kind / "flat.pt")["weight"] for kind in ("serial", "two")]
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loader", BY_HAND)
def test_what_cannot_be_done_is_said_and_the_rest_is_done(loader, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(LOOP.format(loader=loader))
    ported = port(path)
    assert ported.steps[2].state == "by hand"
    assert BY_HAND[loader] in ported.steps[2].says
    assert "DistributedDataParallel(model)" in ported.patch


@pytest.mark.parametrize(
    ("loader", "becomes"),
    [
        ("DataLoader(data, 8)", "DataLoader(data, 8 // WORLD_SIZE, sampler=train_sampler)"),
        ("DataLoader(data, batch_size=(8),)",
         "DataLoader(data, batch_size=(8 // WORLD_SIZE), sampler=train_sampler,)"),
        ("DataLoader(data, shuffle=True, batch_size=a + b)",
         "DataLoader(data, sampler=train_sampler, batch_size=(a + b) // WORLD_SIZE)"),
        ("DataLoader(shuffle=True, dataset=data)",
         "DataLoader(sampler=train_sampler, dataset=data)"),
        ("DataLoader(data, **options)", "DataLoader(data, **train_options)"),
        ("DataLoader(données, 8)", "DataLoader(données, 8 // WORLD_SIZE, sampler=train_sampler)"),
    ],
)  # fmt: skip
def test_a_loader_gets_its_sampler_however_it_is_written(loader, becomes, tmp_path):
    assert f"loader = {becomes}\n" in ported_text(tmp_path, LOOP.format(loader=loader))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def broken(:\n", "is not Python, line 1"),
        ("\0", "is not Python"),
        ("print('hello')\n", "does not import torch"),
        ("import torch\nprint(torch.ones(2))\n", "has no training loop"),
        ("import torch, lightning\n", "uses lightning, which makes it parallel itself"),
        (LOOP.format(loader="DataLoader(d)") + "RANK = 'high'\n", "the name RANK is taken"),
        ("import torch\nw = torch.ones(1, requires_grad=True)\nw.sum().backward()\n",
         "neither a loader nor a model"),
    ],
)  # fmt: skip
def test_what_is_no_training_script_is_refused_with_a_hint(text, problem, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(text)
    with pytest.raises(SpecError, match=problem) as refused:
        port(path)
    assert refused.value.hint


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_refused(tmp_path):
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    for name in ("latin.py", "missing.py", "."):
        with pytest.raises(SpecError):
            port(tmp_path / name)


@pytest.mark.parametrize("text", ["\r\n", "no newline at the end", "\ufeff"])
def test_line_ends_and_the_end_of_the_file_stay_as_they_were(text, tmp_path):
    whole = LOOP.format(loader="DataLoader(data, 8, True)")
    whole = {"\r\n": whole.replace("\n", "\r\n"), "\ufeff": "\ufeff" + whole}.get(text, whole[:-1])
    path = tmp_path / "train.py"
    path.write_bytes(whole.encode())
    ported = port(path)
    assert ported.text.startswith(b"\xef\xbb\xbf") == (text == "\ufeff")
    assert (b"\n" in ported.text.replace(b"\r\n", b"")) == (text != "\r\n")
    subprocess.run(
        ["git", "apply", "-"], input=unified("train.py", whole.encode(), ported.text).encode(),
        cwd=tmp_path, check=True,
    )  # fmt: skip
    assert path.read_bytes() == ported.text


def test_a_script_that_is_partly_ported_gets_only_what_is_missing(tmp_path):
    text = ported_text(tmp_path, LOOP.format(loader="DataLoader(data, 8, True)"))
    path = tmp_path / "train.py"
    path.write_text(
        "".join(line for line in text.splitlines(keepends=True) if "set_epoch" not in line)
    )
    ported = port(path)
    added = [line for line in ported.patch.splitlines() if re.match(r"[+-](?![+-])", line)]
    assert added == ["+    loader.sampler.set_epoch(epoch)  # Another order in each epoch."]


def test_an_own_method_of_the_model_in_the_loop_is_pointed_out(tmp_path):
    path = tmp_path / "train.py"
    text = LOOP.format(loader="DataLoader(data, 8)")
    path.write_text(text.replace("(model(x) - y).abs().mean()", "model.loss(x, y)"))
    assert any("model.loss computes the loss" in each for each in port(path).remarks)


def test_the_verb_prints_the_patch_alone_and_changes_nothing(scalewise, tmp_path):
    text = (SERIAL / "flat.py").read_bytes()
    (tmp_path / "my train.py").write_bytes(text)
    code, out, err = scalewise("port", "my train.py")
    assert code == 0
    assert out.startswith("--- a/my train.py\t\n+++ b/my train.py\t\n@@ ")
    assert err.startswith("1 process group      missing")
    assert (tmp_path / "my train.py").read_bytes() == text
    assert scalewise("port", "my train.py", "-o", "p.patch")[:2] == (0, "p.patch\n")
    assert (tmp_path / "p.patch").read_text() == out
    assert scalewise("port", "my train.py", "--write")[:2] == (0, "my train.py\n")
    code, out, err = scalewise("port", "my train.py")
    assert (code, out) == (0, "")
    assert "missing" not in err
    assert scalewise("port", "my train.py", "-o", "my train.py")[0] == 1


def test_edits_and_their_diff():
    source = Source(b"a\nb\n")
    after = edited(source, [Edit(2, 3, "c"), Edit(2, 2, "x\n")])
    assert after == b"a\nx\nc\n"
    assert unified("t.py", source.text, after).splitlines()[2:] == [
        "@@ -1,2 +1,3 @@", " a", "-b", "+x", "+c",
    ]  # fmt: skip
    assert unified("t.py", b"a", b"a") == ""


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("torch.save(model, 'm.pt')", "if RANK == 0:\n    torch.save(unwrapped(model), 'm.pt')"),
        ("torch.save(1, 'm'); a = 1", "RANK == 0 and torch.save(1, 'm'); a = 1"),
        ("def save(): torch.save(1, 'm')", "def save(): RANK == 0 and torch.save(1, 'm')"),
        ("if a or b:\n    torch.save(1, 'm')",
         "if (a or b) and RANK == 0:\n    torch.save(1, 'm')"),
        ("with open('m', 'w') as m:\n    json.dump(1, m)",
         "if RANK == 0:\n    with open('m', 'w') as m:\n        json.dump(1, m)"),
        ("torch.save(1, 'm')\na = torch.load('m')",
         "if WORLD_SIZE > 1:\n    dist.barrier()  # Rank 0 may still be saving.\na = torch.load"),
    ],
)  # fmt: skip
def test_saving_is_left_to_one_rank_however_it_is_written(line, becomes, tmp_path):
    text = ported_text(tmp_path, LOOP.format(loader="DataLoader(data, 8)") + line + "\n")
    assert f"\n{becomes}" in text
    (tmp_path / "train.py").write_text(text)
    assert port(tmp_path / "train.py").patch == ""


def test_a_distributed_script_has_all_steps(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(DISTRIBUTED)
    ported = port(path)
    assert states(ported) == ", ".join(["there"] * 6)
    assert "line 13: DistributedSampler" in str(ported)
    assert ported.patch == ""
