"""Porting: what is found in a script, the patch, and that the ported script trains alike."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paths import TESTS
from scalewise.errors import SpecError
from scalewise.port import port
from scalewise.port.patch import Edit, Source, apply_edits, unified_diff
from start_ranks import free_port, start

SERIAL = TESTS / "serial"
CLOSE = {
    "above": 1e-3,
    "flat": 1e-4,
    "functions": 1e-4,
    "inline": 1e-4,
    "split": 0.1,
    "trainer": 0.15,
}
"""How near two ranks come to the serial loss, as a share of it: those that shuffle see
another order, the others differ by rounding alone."""
MISSING = {
    "above": "missing, missing, missing, present, missing, not needed",
    "flat": "missing, not needed, missing, not needed, missing, missing",
    "functions": "missing, missing, missing, present, missing, missing",
    "inline": "missing, missing, missing, present, missing, not needed",
    "split": "missing, missing, missing, present, missing, missing",
    "trainer": "missing, missing, missing, present, missing, missing",
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
    "DataLoader(data, sampler=WeightedRandomSampler(w, 9))": "already has a sampler",
    "DataLoader(*everything)": "given by position",
    "{k: DataLoader(data[k], 4) for k in 'ab'}['a']": "cannot tell which loader is for training",
    "zip(x.split(4), y.split(4))": "not made by a DataLoader",
}


def states(ported):
    return ", ".join(step.state for step in ported.steps)


def ported_text(tmp_path, text):
    path = tmp_path / "train.py"
    path.write_text(text)
    return port(path).patched_script.decode()


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
    assert script.read_bytes() == ported.patched_script
    compile(ported.patched_script, "train.py", "exec")
    again = port(script)
    assert again.patch == ""
    assert "missing" not in states(again)


def test_only_lines_that_change_are_touched():
    before = (SERIAL / "trainer.py").read_text().splitlines()
    after = port(SERIAL / "trainer.py").patched_script.decode().splitlines()
    changed = [line for line in before if line not in after]
    assert len(changed) == 9
    assert 'so far""",' in after


IN_TURN = """
import contextlib, os, runpy, sys
for word in sys.argv[1:]:
    os.environ["MASTER_PORT"], _, path = word.partition(":")
    folder, name = os.path.split(path)
    os.chdir(folder)
    sys.argv = [name]
    with open(name + ".txt", "a") as out, contextlib.redirect_stdout(out):
        with contextlib.suppress(SystemExit):
            runpy.run_path(name, run_name="__main__")
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Every script run alone, ported and run alone, and ported on two ranks: what each printed."""
    home = tmp_path_factory.mktemp("port")
    for each in CLOSE:
        for kind in ("serial", "one", "two"):
            (home / kind).mkdir(exist_ok=True)
            shutil.copy(SERIAL / f"{each}.py", home / kind)
            if kind != "serial":
                port(home / kind / f"{each}.py").write(home / kind / f"{each}.py")
    # One interpreter runs all, or one for each rank: starting PyTorch takes longer than training.
    alone, ranks = (
        [f"{free_port()}:{home}/{kind}/{each}.py" for kind in kinds for each in CLOSE]
        for kinds in (("serial", "one"), ("two",))
    )
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    argv = [sys.executable, "-c", IN_TURN, *alone]
    subprocess.run(argv, env={**os.environ, **quiet}, check=True, timeout=120)
    code, said = start(2, "-c", IN_TURN, *ranks, **quiet)
    assert code == 0, said
    return home


def final_loss(path):
    return float(re.search(r"^final loss ([\d.]+)", path.read_text(), re.M)[1])


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["flat", "trainer"])
def test_the_training_loss_that_is_printed_is_a_mean_on_two_ranks_too(name, trained):
    serial, two = (
        float(re.search(r"mean ([\d.]+)", (trained / kind / f"{name}.py.txt").read_text())[1])
        for kind in ("serial", "two")
    )
    assert two == pytest.approx(serial, rel=0.2)  # Other samples on each rank, not half the loss.


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
    assert BY_HAND[loader] in ported.steps[2].message
    assert "DistributedDataParallel(model)" in ported.patch


@pytest.mark.parametrize(
    ("loader", "becomes"),
    [
        ("DataLoader(data, 8)", "DataLoader(data, 8 // WORLD_SIZE, sampler=train_sampler)"),
        ("DataLoader(data, batch_size=(8),)",
         "DataLoader(data, batch_size=(8 // WORLD_SIZE), sampler=train_sampler,)"),
        ("DataLoader(data, shuffle=True, batch_size=a + b)",
         "DataLoader(data, sampler=train_sampler, batch_size=max(1, (a + b) // WORLD_SIZE))"),
        ("DataLoader(shuffle=True, dataset=data)",
         "DataLoader(sampler=train_sampler, dataset=data)"),
        ("DataLoader(data, **options)", "DataLoader(data, **train_options)"),
        ("DataLoader(données, 8)", "DataLoader(données, 8 // WORLD_SIZE, sampler=train_sampler)"),
        ("DataLoader(data, 1)", "DataLoader(data, max(1, 1 // WORLD_SIZE), sampler=train_sampler)"),
        ("DataLoader(data, batch_size=args.batch)",
         "DataLoader(data, batch_size=max(1, args.batch // WORLD_SIZE), sampler=train_sampler)"),
        ("DataLoader(data, batch_size=None)",
         "DataLoader(data, batch_size=None, sampler=train_sampler)"),
    ],
)  # fmt: skip
def test_a_loader_gets_its_sampler_however_it_is_written(loader, becomes, tmp_path):
    assert f"loader = {becomes}\n" in ported_text(tmp_path, LOOP.format(loader=loader))


def test_a_small_batch_in_options_leaves_every_rank_a_sample(tmp_path):
    text = ported_text(tmp_path, LOOP.format(loader="DataLoader(data, **options)"))
    assert 'train_options["batch_size"] = max(1, train_options["batch_size"] // WORLD_SIZE)' in text


def test_a_batch_that_is_named_before_counts_as_the_number_it_is(tmp_path):
    text = LOOP.format(loader="DataLoader(data, BATCH)").replace("\nmodel", "\nBATCH = 64\nmodel")
    assert "DataLoader(data, BATCH // WORLD_SIZE, sampler" in ported_text(tmp_path, text)


@pytest.mark.parametrize(
    ("imports", "replace"),
    [
        ("from torch.utils.data import DataLoader as DL", {"DataLoader(": "DL("}),
        ("import torch.utils.data as tud", {"DataLoader(": "tud.DataLoader("}),
        ("from torch.utils import data as D", {"DataLoader(": "D.DataLoader("}),
        ("import torch.nn as N\nfrom torch.utils.data import DataLoader",
         {"torch.nn.Linear": "N.Linear"}),
        ("from torch import optim as O\nfrom torch.utils.data import DataLoader",
         {"torch.optim.SGD": "O.Adagrad"}),
        ("from torch.optim import SGD as S\nfrom torch.utils.data import DataLoader",
         {"torch.optim.SGD": "S"}),
        ("from torch.utils.data import DataLoader\nfrom tqdm.auto import tqdm as bar",
         {"in loader:": "in bar(loader):"}),
        ("from torch.utils.data import DataLoader\nfrom torch import save as keep",
         {"torch.save(": "keep("}),
        ("import torch as T\nfrom torch.utils.data import DataLoader", {"torch.save(": "T.save("}),
    ],
)  # fmt: skip
def test_what_is_imported_under_another_name_is_known(imports, replace, tmp_path):
    text = LOOP.format(loader="DataLoader(data, 8, True)") + "torch.save(model, 'm.pt')\n"
    text = text.replace("from torch.utils.data import DataLoader", imports)
    for before, after in replace.items():
        assert before in text
        text = text.replace(before, after)
    path = tmp_path / "train.py"
    path.write_text(text)
    ported = port(path)
    assert states(ported) == "missing, not needed, missing, not needed, missing, missing"
    after = ported.patched_script.decode()
    assert "8 // WORLD_SIZE, sampler=train_sampler)" in after
    assert "(unwrapped(model), 'm.pt')" in after


def test_a_name_that_only_looks_like_an_import_is_not_taken_for_one(tmp_path):
    text = "from torch.utils.data import DataLoader as D\n" + LOOP.format(loader="list(f(1))")
    path = tmp_path / "train.py"
    path.write_text(text + "def f(D):\n    return D(1)\n")
    assert "not made by a DataLoader" in port(path).steps[2].message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def broken(:\n", "is not Python, line 1"),
        ("\0", "is not Python"),
        ("print('hello')\n", "does not import torch"),
        ("import torch\nprint(torch.ones(2))\n", "has no training loop"),
        ("import torch, lightning\n", "uses lightning, which already makes it parallel"),
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
    assert ported.patched_script.startswith(b"\xef\xbb\xbf") == (text == "\ufeff")
    assert (b"\n" in ported.patched_script.replace(b"\r\n", b"")) == (text != "\r\n")
    patch = unified_diff("train.py", whole.encode(), ported.patched_script)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=tmp_path, check=True)
    assert path.read_bytes() == ported.patched_script


def test_the_group_is_made_before_a_model_outside_the_guard_is_wrapped():
    text = port(SERIAL / "above.py").patched_script.decode()
    made, wrapped = text.index("dist.init_process_group"), text.index("DistributedDataParallel(m")
    assert made < wrapped < text.index('\nif __name__ == "__main__":')
    assert 'if WORLD_SIZE > 1 and __name__ == "__main__":\n    if torch.cuda' in text
    assert "if dist.is_initialized():\n    model = " in text  # Not in a loader's process.
    assert text.rstrip().endswith("dist.destroy_process_group()")


def test_a_guard_above_the_training_is_not_taken_for_the_start(tmp_path):
    loop = LOOP.format(loader="DataLoader(range(8), 4)")
    text = loop.replace("model =", 'if __name__ == "__main__":\n    print(1)\nmodel =', 1)
    ported = ported_text(tmp_path, text)
    assert ported.index("init_process_group") < ported.index("if __name__")
    assert ported.rstrip().endswith("\nif WORLD_SIZE > 1:\n    dist.destroy_process_group()")


MOVED = LOOP.format(loader="DataLoader(data, 4)").replace(
    "    for x, y in loader:\n",
    "    for x, y in loader:\n        x, y = x.to({where}), y.to({where})\n",
)


@pytest.mark.parametrize(
    ("first", "where", "becomes"),
    [
        ("device = 0  # shorthand for cuda:0", "device", "device = LOCAL_RANK  # shorthand"),
        ("device = torch.device(1)", "device", "device = torch.device(LOCAL_RANK)\n"),
        ("", "0", "x, y = x.to(LOCAL_RANK), y.to(LOCAL_RANK)"),
        ("", "args.gpu", "x, y = x.to(LOCAL_RANK), y.to(LOCAL_RANK)"),
    ],
)
def test_a_whole_number_is_an_accelerator(first, where, becomes, tmp_path):
    text = ported_text(tmp_path, f"import torch\n{first}\n{MOVED.format(where=where)}")
    assert becomes in text
    assert "torch.cuda.set_device(LOCAL_RANK)" in text
    assert states(port(tmp_path / "train.py")).split(", ")[1::2] == [
        "missing",
        "present",
        "not needed",
    ]


def test_a_whole_number_is_followed_through_functions_and_objects(tmp_path):
    text = (SERIAL / "trainer.py").read_text()
    text = re.sub(r'= "cuda" if .*', "= 0", text)
    assert "cuda" not in text
    assert "= LOCAL_RANK\n" in ported_text(tmp_path, text)


@pytest.mark.parametrize("where", ["args.device", "place", "where()", "device=args.device"])
def test_a_device_that_cannot_be_seen_is_left_to_a_person(where, tmp_path):
    text = ported_text(tmp_path, MOVED.format(where=where))
    assert "torch.cuda.set_device(LOCAL_RANK)" in text  # Right on the CPU too.
    (path := tmp_path / "train.py").write_text(MOVED.format(where=where))
    found = port(path)
    assert (
        found.steps[1].state == "by hand" and f"x.to({where}) may be any" in found.steps[1].message
    )
    assert not any("CPU" in each for each in found.remarks)


@pytest.mark.parametrize("where", ["'cpu'", "torch.float64", "dtype", "y.device", "y.dtype"])
def test_a_script_on_the_cpu_needs_no_device(where, tmp_path):
    (path := tmp_path / "train.py").write_text(MOVED.format(where=where))
    assert states(port(path)).split(", ")[1] == "not needed"


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
    assert scalewise("port", "my train.py", "-o", "none.patch")[:2] == (0, "")
    assert not (tmp_path / "none.patch").exists()
    assert scalewise("port", "my train.py", "-o", "my train.py")[0] == 1


def test_edits_and_their_diff():
    source = Source(b"a\nb\n")
    after = apply_edits(source, [Edit(2, 3, "c"), Edit(2, 2, "x\n")])
    assert after == b"a\nx\nc\n"
    assert unified_diff("t.py", source.text, after).splitlines()[2:] == [
        "@@ -1,2 +1,3 @@", " a", "-b", "+x", "+c",
    ]  # fmt: skip
    assert unified_diff("t.py", b"a", b"a") == ""


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
    assert states(ported) == ", ".join(["present"] * 6)
    assert "line 13: DistributedSampler" in str(ported)
    assert ported.patch == ""


SUMS = LOOP.replace("for epoch in range(2):\n", "for epoch in range(2):\n    total = 0\n")
SUMS += "        total += {add}\n    {use}\n"


@pytest.mark.parametrize(
    ("add", "use", "becomes"),
    [
        ("loss.item() * len(x)", "print(total / len(data))", "print(total / len(loader.sampler))"),
        ("loss.item() * len(x)", "total /= len(data)", "total /= len(loader.sampler)"),
        ("loss.item() * len(x)", "print(f'{total / float(len(data)):.3f}')",
         "print(f'{total / float(len(loader.sampler)):.3f}')"),
        ("(model(x) > y).sum().item()", "print(100. * total / len(data))",
         "print(100. * total / len(loader.sampler))"),
        ("loss.item() * len(x)", "print(total / len(loader.dataset))",
         "print(total / len(loader.sampler))"),
    ],
)  # fmt: skip
def test_a_mean_over_the_training_data_stays_a_mean(add, use, becomes, tmp_path):
    text = SUMS.format(loader="DataLoader(data, 8)", add=add, use=use)
    assert f"    {becomes}\n" in ported_text(tmp_path, text)
    assert not any("one rank's share" in each for each in port(tmp_path / "train.py").remarks)


@pytest.mark.parametrize(
    ("add", "use"),
    [
        ("loss.item()", "print(total / len(loader))"),  # A mean of means, of as many batches.
        ("loss.item()", "print(total / len(data))"),
        ("loss.item()", "print(total / len(loader.dataset))"),
        ("loss.item() * len(x)", "print(len(data) // 8, len(loader.dataset) / 8)"),
        ("loss.item() * len(x)", "print(1 / len(data), total / len(test_set))"),
    ],
)
def test_a_length_that_is_right_stays(add, use, tmp_path):
    text = SUMS.format(loader="DataLoader(data, 8)", add=add, use=use)
    assert f"    {use}\n" in ported_text(tmp_path, text)
    (tmp_path / "train.py").write_text(text)
    assert not any("one rank's share" in each for each in port(tmp_path / "train.py").remarks)


@pytest.mark.parametrize(
    ("use", "loader"),
    [
        ("n = len(data); print(total / n)", "DataLoader(data, 8)"),
        ("print(total / (len(loader) * 8))", "DataLoader(data, 8)"),
        ("print(total / len(data))", "DataLoader(data, 8, sampler=mine)"),
    ],
)
def test_a_mean_that_cannot_be_mended_is_pointed_out(use, loader, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SUMS.format(loader=loader, add="loss.item() * len(x)", use=use))
    assert any(each.startswith("Line 13: a sum over") for each in port(path).remarks)


EVALUATES = """with torch.no_grad():
        for x, y in other:
            loss = (model(x) - y).abs().mean()
            judged = loss.item()
    if judged < 1: break"""


@pytest.mark.parametrize(
    ("add", "use", "line"),
    [
        ("loss.item()", "if total / len(loader) < 0.01: break", 13),
        ("loss.item()", "if total < 1:\n        break", 14),
        ("loss.item() * 2", "mean = total / 3\n    if mean < 1: sys.exit()", 14),
        ("1\n        losses.append(float(loss))", "if sum(losses) < 1: break", 14),
        ("1\n        meter.update(loss.item())", "if meter.average < 1: break", 14),
        ("1\n        if loss < best: best, bad = loss, 0\n        else: bad += 1",
         "if bad > 3: break", 15),
        ("loss.item()", "if total < 1: raise SystemExit(0)", 13),
        ("1\n        guess = model(x)", "if (guess > y).all(): break", 14),
        ("1\n        if loss.isnan(): break", "pass", 13),
    ],
)  # fmt: skip
def test_a_loop_that_is_left_on_a_training_loss_is_pointed_out(add, use, line, tmp_path):
    path = tmp_path / "train.py"
    text = SUMS.format(loader="DataLoader(data, 8)", add=add, use=use)
    text = text.replace("import torch\n", "import torch, sys; losses = []; meter = Meter()\n", 1)
    path.write_text(text)
    found = [each for each in port(path).remarks if "training loss of its own" in each]
    assert [each.partition(":")[0] for each in found] == [f"Line {line}"]


@pytest.mark.parametrize(
    ("add", "use"),
    [
        ("loss.item()", "if epoch > 3: break"),
        ("loss.item()", EVALUATES),
        ("loss", "torch.distributed.all_reduce(total)\n    if total < 1: break"),
        ("len(x)", "if total > 1000: break"),
        ("loss.item()", "total = 0\n    if total < 1: break"),
    ],
)
def test_a_loop_that_all_ranks_leave_together_is_not(add, use, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SUMS.format(loader="DataLoader(data, 8)", add=add, use=use))
    assert not any("training loss of its own" in each for each in port(path).remarks)


FUNCTIONS = """import torch
from torch.utils.data import DataLoader
def epoch_of(model, loader, optimizer):
    total = 0
    for x, y in loader:
        loss = (model(x) - y).abs().mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)
def judge(model, loader):
    loss = 0
    for x, y in loader:
        loss += (model(x) - y).abs().mean().item()
    return loss
def main():
    train, test = DataLoader(a, 8, True), DataLoader(b, 8)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(9):
        mean = epoch_of(model, train, optimizer)
        loss = judge(model, test)
        if {left} < 1:
            return loss
    if mean < 1:
        return mean
main()
"""


@pytest.mark.parametrize(("left", "noted"), [("mean", True), ("loss", False)])
def test_a_training_loss_is_followed_through_functions(left, noted, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(FUNCTIONS.format(left=left))
    found = [each for each in port(path).remarks if "training loss of its own" in each]
    assert [each.partition(":")[0] for each in found] == ["Line 24"] * noted


def test_a_while_that_asks_for_the_training_loss_is_pointed_out(tmp_path):
    path = tmp_path / "train.py"
    text = LOOP.format(loader="DataLoader(data, 8)")
    path.write_text(text.replace("for epoch in range(2):", "loss = 9\nwhile loss > 1:"))
    assert any(each.startswith("Line 7: each rank") for each in port(path).remarks)


STEP = """import torch
from torch.utils.data import DataLoader
class Trainer:
    def __init__(self, a, b):
        self.train_dl = DataLoader(a, batch_size=64, shuffle=True, drop_last=True)
        self.val_dl = DataLoader(b, batch_size=64)
        self.model = torch.nn.Linear(1, 1)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def step(self, batch):
        loss = self.model(batch).mean()
        loss.backward()
        self.opt.step()
        return loss.item()
    def fit(self):
        for epoch in range(2):
            losses = {each}
Trainer(a, b).fit()
"""


def test_a_comprehension_that_trains_is_a_training_loop(tmp_path):
    text = ported_text(tmp_path, STEP.format(each="[self.step(b) for b in self.train_dl]"))
    assert "            self.train_dl.sampler.set_epoch(epoch)" in text
    assert "self.train_dl = DataLoader(a, batch_size=64 // WORLD_SIZE, sampler=" in text
    assert "self.val_dl = DataLoader(b, batch_size=64)\n" in text


@pytest.mark.parametrize(
    "each",
    ["list(map(self.step, self.train_dl))",
     "[self.step(b) for epoch in range(2) for b in self.train_dl]"],
)  # fmt: skip
def test_where_no_epoch_can_be_told_the_hint_says_how(each, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(STEP.format(each=each))
    ported = port(path)
    assert ported.steps[2].state == "by hand"
    assert "self.train_dl.sampler.set_epoch(epoch)" in ported.steps[2].message
    assert "batch_size=64 // WORLD_SIZE, sampler=train_sampler" in ported.patch
    ported.write(path)
    again = port(path)
    assert (again.patch, again.steps[2].state) == ("", "by hand")


def test_loaders_that_look_alike_are_left_to_a_person(tmp_path):
    path = tmp_path / "train.py"
    text = STEP.format(each="list(map(self.step, self.train_dl))").replace("train_dl", "first")
    path.write_text(text.replace("shuffle=True, drop_last=True", ""))
    says = port(path).steps[2].message
    assert "line 5, 6: cannot tell which loader is for training" in says
    assert "set_epoch" in says


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("open('r.csv', 'a').write('1')", "if RANK == 0:\n    open('r.csv', 'a').write('1')"),
        ("Path('r').write_text('1')", "if RANK == 0:\n    Path('r').write_text('1')"),
        ("with Path('r').open(mode='w') as f:\n    csv.writer(f).writerow([1])",
         "if RANK == 0:\n    with Path('r').open(mode='w') as f:\n        csv.writer(f)"),
        ("log = open('log', 'w')", "log = open('log' if RANK == 0 else os.devnull, 'w')"),
        ("with open('r', 'w') as f:\n    n = f.write('1')\nprint(n)",
         "with open('r' if RANK == 0 else os.devnull, 'w') as f:\n    n = f.write('1')\n"),
        ("with open('r', 'w') as f:\n    f.write(str(model(x)))",
         "with open('r' if RANK == 0 else os.devnull, 'w') as f:\n    f.write(str(model(x)))"),
        ("import numpy as n\nn.save('a', 1)",
         "import numpy as n\nif RANK == 0:\n    n.save('a', 1)"),
        ("with open('r') as f:\n    f.read()", "with open('r') as f:\n    f.read()"),
    ],
)  # fmt: skip
def test_files_are_written_by_one_rank(line, becomes, tmp_path):
    text = ported_text(tmp_path, LOOP.format(loader="DataLoader(data, 8)") + line + "\n")
    assert f"\n{becomes}" in text
    (tmp_path / "train.py").write_text(text)
    assert port(tmp_path / "train.py").patch == ""


def test_a_file_that_is_open_while_training_keeps_all_ranks_training(tmp_path):
    before, _, after = LOOP.format(loader="DataLoader(data, 8)").partition("for epoch")
    loop = f"for epoch{after}    torch.save(1, 'm')\n    log.write('1')\n"
    loop = "".join(f"    {line}" for line in loop.splitlines(keepends=True))
    text = ported_text(tmp_path, f"{before}with open('log', 'w') as log:\n{loop}")
    assert "\nwith open('log' if RANK == 0 else os.devnull, 'w') as log:\n    for epoch" in text
    assert "        if RANK == 0:\n            torch.save(1, 'm')\n" in text


def test_a_file_that_cannot_be_left_to_one_rank_is_pointed_out(tmp_path):
    path = tmp_path / "train.py"
    text = LOOP.format(loader="DataLoader(data, 8)") + "log = Path('log').open('w')\n"
    path.write_text(text)
    step = port(path).steps[5]
    assert (step.state, step.message.partition(":")[0]) == ("by hand", "line 11")


@pytest.mark.parametrize("first", ["# -*- coding: latin-1 -*-\n", "#!/x\n# coding: cp1252\n"])
def test_a_script_is_read_and_patched_in_the_encoding_it_names(first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = first + LOOP.format(loader="DataLoader(donn\xe9es, 8)  # caf\xe9")
    path = Path("caf\xe9.py")
    path.write_bytes(text.encode("latin-1"))
    ported = port(path)
    assert ported.patched_script.startswith(first.encode())
    assert b"DataLoader(donn\xe9es, 8 // WORLD_SIZE" in ported.patch_bytes
    subprocess.run(["patch", "-p1", "--fuzz=0"], input=ported.patch_bytes, check=True)
    assert path.read_bytes() == ported.patched_script
    assert port(path).patch == ""


def test_a_coding_line_that_is_wrong_is_refused(tmp_path):
    for line in (b"# coding: klingon\n", b"# coding: ascii\n# caf\xe9\n"):
        (tmp_path / "train.py").write_bytes(line)
        with pytest.raises(SpecError, match="is not Python") as refused:
            port(tmp_path / "train.py")
        assert refused.value.hint


def test_a_coding_line_stays_first_where_nothing_is_imported_at_the_top(tmp_path):
    body = LOOP.format(loader="DataLoader(data, 8)").splitlines(keepends=True)
    text = "# coding: latin-1\ndef main():\n" + "".join(f"    {line}" for line in body) + "main()\n"
    assert ported_text(tmp_path, text).startswith("# coding: latin-1\nimport os\n")
