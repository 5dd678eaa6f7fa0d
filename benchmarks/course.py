"""The course's own job, through its own script and through scalewise, on one accelerator.

    python benchmarks/course.py [--pairs 3] [--no-others] [--keep FOLDER]

ViT-H/14 on 2,560 JPEGs of 224², batch 128, bf16, SGD, ten workers, four epochs, one validation
of 512. Pairs of the two are run in turn, each with empty compiler caches; then the others: ours
once more with a warm cache, and once with made-up images on the device. Shown are the steady
throughput (the first epoch is left out), the complete time of the command, the memory, the
losses, how far the step is from the device's own matrix rate, and where the complete time went.
Exits with 1 when a claim does not hold.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLAIMS = {"throughput": 1.25, "time": 0.40, "input": 0.97}
STUDY = """
name = "{name}"
scaling = "weak"
[run]
workload = "vit-h14"
data = "{data}"
batch = 128
precision = "bf16"
compile = "blocks"
optimizer = "sgd"
optimizer_step = "fused"
lr = 0.001
workers = {workers}
{length}
[vary]
topology = ["1x1"]
"""
FOUR = "epochs = 4\nvalidate_every = 4"
HERE = Path(__file__).parent


def main() -> None:
    """Run the pairs, compare, and say what holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--others", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--keep", type=Path, help="where pairs stay: those of an earlier time are not run again"
    )
    asked = parser.parse_args()
    home = asked.keep or Path(tempfile.mkdtemp())
    home.mkdir(parents=True, exist_ok=True)
    data = home / "micro-224"
    if not data.exists():
        made = ["data", "make", str(data), "--like", "micro-224", "--images", "2560"]
        run(["scalewise", *made], {})
    matrix = matrix_rate()
    print(f"32,896 x 1280 x 5120 in bf16: {matrix / 1e12:.0f} TFLOP/s", flush=True)
    pairs = []
    for number in range(asked.pairs):
        kept = home / f"pair-{number}.json"
        if not kept.exists():
            both = theirs(home, data), ours(home, str(data), f"pair-{number}", FOUR)
            kept.write_text(json.dumps(both), encoding="utf-8")
        pairs.append(json.loads(kept.read_text(encoding="utf-8")))
        tell_pair(*pairs[-1], matrix)
    missed = tell(pairs)
    if asked.others:
        warm = ours(home, str(data), f"pair-{asked.pairs - 1}", FOUR, again=True)
        made_up = "synthetic-on-device:2560x224x224x3"
        device = ours(home, made_up, "on-device", FOUR, workers=0)
        missed |= tell_others(pairs[-1][1], warm, device)
    sys.exit("a claim does not hold" if missed else 0)


def run(argv: list[str], env: dict[str, str], cwd: Path | None = None) -> float:
    """Run a command; return the seconds that it took, from before it started."""
    began = time.perf_counter()
    subprocess.run(argv, env={**os.environ, **env}, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def theirs(home: Path, data: Path) -> dict:
    """Run the course's script with empty caches."""
    out = home / "theirs.json"
    script = str(HERE / "course_script.py")
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    with tempfile.TemporaryDirectory() as cache:
        env = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        seconds = run([*start, script, str(data), str(out)], env)
    return {**json.loads(out.read_text(encoding="utf-8")), "time": seconds}


def ours(home: Path, data: str, name: str, length: str, *, workers: int = 10, again: bool = False):
    """Run the same job through scalewise; its compiler's cache lies in the study's folder."""
    study = home / f"{name}.toml"
    study.write_text(STUDY.format(name=name, data=data, workers=workers, length=length))
    folder = home / "runs" / name
    if not again:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = run(["scalewise", "run", str(study), *(["--again"] if again else [])], {}, home)
    told = subprocess.run(
        ["scalewise", "measure", str(folder), "--json"], capture_output=True, text=True, check=True
    )
    point = json.loads(told.stdout)["curves"][0]["points"][0]
    why = subprocess.run(
        ["scalewise", "explain", str(folder), "--json"], capture_output=True, text=True, check=True
    )
    spent = json.loads(why.stdout)["curves"][0]["points"][0]["complete"]
    losses = []
    for line in next(folder.glob("*/rank-00000.jsonl")).read_text(encoding="utf-8").splitlines():
        losses += json.loads(line).get("losses", [])
    return {
        "rate": point["throughput"]["value"],
        "memory": point["memory"]["value"] / 2**30,
        "flops": (point.get("flops_per_second") or {}).get("value"),
        "mfu": (point.get("mfu") or {}).get("value"),
        "time": seconds,
        "spans": spent,
        "losses": losses,
    }


def matrix_rate() -> float:
    """Return the FLOP/s of a product of matrices as large as the model's own."""
    code = (
        "import torch, time\n"
        "a, b = (torch.randn(*s, device='cuda', dtype=torch.bfloat16) for s in "
        "((32896, 1280), (1280, 5120)))\n"
        "[a @ b for _ in range(5)]; torch.cuda.synchronize(); t = time.perf_counter()\n"
        "[a @ b for _ in range(50)]; torch.cuda.synchronize()\n"
        "print(50 * 2 * 32896 * 1280 * 5120 / (time.perf_counter() - t))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def tell_pair(course: dict, mine: dict, matrix: float) -> None:
    """Print one pair."""
    for name, each in (("course", course), ("ours", mine)):
        print(
            f"{name:<8} {each['rate']:7.1f} images/s   {each['time']:6.1f} s   "
            f"{each['memory']:5.1f} GiB   loss {each['losses'][0]:.3f} to "
            f"{statistics.mean(each['losses'][-10:]):.3f}",
            flush=True,
        )
    if mine["flops"]:
        share = mine["flops"] / matrix
        print(f"         {mine['flops'] / 1e12:.0f} TFLOP/s, {share:.0%} of the matrix rate")


def tell(pairs: list[tuple[dict, dict]]) -> bool:
    """Print the ratios and where the time went; return whether a claim does not hold."""
    rates = [mine["rate"] / course["rate"] for course, mine in pairs]
    times = [mine["time"] / course["time"] for course, mine in pairs]
    print(f"steady throughput   {min(rates):.3f} to {max(rates):.3f} x, at least 1.25")
    print(f"complete time       {min(times):.3f} to {max(times):.3f} x, at most 0.40")
    for span, seconds in pairs[-1][1]["spans"].items():
        print(f"  {span:<14} {seconds:7.2f} s", flush=True)
    more = any(mine["memory"] > course["memory"] for course, mine in pairs)
    return more or min(rates) < CLAIMS["throughput"] or max(times) > CLAIMS["time"]


def tell_others(cold: dict, warm: dict, device: dict) -> bool:
    """Print what a warm cache changes, and images that need no loader; return as ``tell``."""
    fed = cold["rate"] / device["rate"]
    print(f"with warm caches    {warm['time']:.1f} s, compiling {warm['spans'].get('compile')} s")
    print(f"real JPEGs / made-up images on the device  {fed:.3f}, at least 0.97")
    return fed < CLAIMS["input"]


if __name__ == "__main__":
    main()
