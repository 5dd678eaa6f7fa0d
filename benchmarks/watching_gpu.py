"""What it costs a compiled training loop on a GPU to be watched.

    python benchmarks/watching_gpu.py [SECONDS]

The loop is limited by the host: a small GPT (6 blocks, 384 wide, 256 tokens, batch 64), compiled,
bf16, under DDP with one rank, four micro-steps to an optimizer step. Inside one process steps
alternate in seeded order: watched, not watched, and not watched again (the noise of the
comparison). Whole runs differ by 20 % from each other on a shared machine; alternating steps show
a percent. Every three seconds the sampler beside the run is stopped or continued, to see what it
costs. Exits with 1 when the claim does not hold.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.01
SECONDS = 150.0
SAMPLER_SECONDS = 3.0
"""After so long the sampler is stopped, or continued."""
BATCH, MICRO_STEPS, TOKENS, VOCABULARY, WIDTH, HEADS, BLOCKS = 64, 4, 256, 65, 384, 6, 6


def main() -> None:
    """Run this file as a watched script, and compare what it found with the claim."""
    command = "import sys; sys.argv[0] = 'scalewise'; from scalewise.cli import main; main()"
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-c", command, "run", "--on", "1", "--", Path(__file__).absolute()]
        argv += sys.argv[1:] or [str(SECONDS)]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
        answer = Path(folder) / "answer.json"
        if not answer.exists():
            sys.exit(done.stderr)
        found = json.loads(answer.read_text())
    ratio, low, high = found["watched"]
    sampled, unsampled = found["sampler_ms"]
    verdict = "holds" if high <= LIMIT else "does not hold" if low > LIMIT else "unclear"
    print(
        f"a step of {found['ms']:.1f} ms, {found['rounds']} steps each\n"
        f"  watched / not    {ratio:.4f}  ({low:.4f} to {high:.4f}); at most {LIMIT}: {verdict}\n"
        f"  not / not        {found['again'][0]:.4f}  "
        f"({found['again'][1]:.4f} to {found['again'][2]:.4f})\n"
        f"  with the sampler {sampled:.2f} ms, without {unsampled:.2f} ms (medians of all steps)"
    )
    sys.exit("the claim does not hold" if verdict == "does not hold" else 0)


def work(seconds: float) -> None:
    """Alternate in this process, and write the ratios of medians with their intervals."""
    import torch
    import torch.distributed as dist
    from torch import nn

    from scalewise.watch.torch import hooks

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
            self.inputs = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
            self.output = nn.Linear(WIDTH, WIDTH, bias=False)
            self.mlp = nn.Sequential(
                nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.2)
            )

        def forward(self, x):
            batch, tokens, _ = x.shape
            parts = self.inputs(self.norms[0](x)).chunk(3, dim=-1)
            heads = [part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in parts]
            mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.output(mixed.transpose(1, 2).reshape(x.shape))
            return x + self.mlp(self.norms[1](x))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Embedding(TOKENS, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
            self.head = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens, targets):
            places = torch.arange(TOKENS, device=tokens.device)
            logits = self.head(self.blocks(self.embedding(tokens) + self.positions(places)))
            return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def batch():
        starts = torch.randint(len(text) - TOKENS - 1, (BATCH,))
        parts = [torch.stack([text[i + k : i + k + TOKENS] for i in starts]) for k in (0, 1)]
        return [part.pin_memory().cuda(non_blocking=True) for part in parts]

    dist.init_process_group("nccl")
    torch.manual_seed(0)
    text = torch.randint(0, VOCABULARY, (1_000_000,))
    model = nn.parallel.DistributedDataParallel(torch.compile(Gpt().cuda()), device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        for micro_step in range(MICRO_STEPS):
            model.require_backward_grad_sync = micro_step == MICRO_STEPS - 1
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(*batch()) / MICRO_STEPS
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(30):
        step()
    watcher, chance = hooks._hooks.watcher, random.Random(0)
    spent = {"watched": [], "not": [], "again": []}
    by_sampler = {True: [], False: []}
    sampled, until = True, time.monotonic() + seconds
    while time.monotonic() < until:
        sampled = not sampled
        for pid in sampler_pids():
            os.kill(pid, signal.SIGCONT if sampled else signal.SIGSTOP)
        block_end = time.monotonic() + SAMPLER_SECONDS
        while time.monotonic() < block_end:
            for variant in chance.sample(list(spent), len(spent)):
                watcher.set_enabled(enabled=variant == "watched")
                began = time.perf_counter()
                step()
                spent[variant].append(time.perf_counter() - began)
                by_sampler[sampled].append(spent[variant][-1])
    for pid in sampler_pids():
        os.kill(pid, signal.SIGCONT)
    watcher.set_enabled(enabled=True)
    write_answer(spent, [by_sampler[True], by_sampler[False]])
    dist.destroy_process_group()


def sampler_pids() -> list[int]:
    """Return the process that samples the machine for this run."""
    argv = ["pgrep", "-f", f"node_sampler {os.environ['SCALEWISE_RUN']}"]
    return [int(pid) for pid in subprocess.run(argv, capture_output=True, text=True).stdout.split()]


def write_answer(spent: dict[str, list[float]], by_sampler: list[list[float]]) -> None:
    """Write the ratios and medians where the other half reads them."""
    from rounds import Rounds

    rounds = Rounds(spent)
    answer = {
        "ms": 1000 * statistics.median(spent["not"]),
        "rounds": len(rounds),
        "watched": rounds.ratio("watched", "not"),
        "again": rounds.ratio("again", "not"),
        "sampler_ms": [1000 * statistics.median(seconds) for seconds in by_sampler],
    }
    Path("answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    if "SCALEWISE_RUN" in os.environ:
        work(float(sys.argv[1]))
    else:
        main()
