"""What `scalewise compare` tells apart, where the truth is known.

    python benchmarks/comparison.py [PAIRS]

Pairs of studies follow the fake machine's law, with noise between runs of 1, 2 and 3 %, and begin
with 2, 3 and 5 repeats. Where compare cannot tell, it is given the repeats that it asks for.

1. Noise alone: how many of 100 pairs are not called faster or slower, at first and in the end.
2. The second study is 3 % slower, on all numbers of devices or on one: how many of 100 are found,
   at the repeats asked for.
3. As 1 and 2, and each study finds the machine faster or slower, by a factor whose logarithm has
   a standard deviation of 10 %: in how many of 100 pairs the verdict is wrong ("faster" or "slower"
   without a difference; "faster" for a study that is 30 % slower), and how often 30 % are found.
4. 20 changes of one parameter of the machine: how often the cause that it moves is named.

Exits with 1 if noise alone is a difference in more than 5 of 100 pairs, also where the machine's
speed changes, if fewer than 90 of 100 slow-downs are found, or fewer than 18 of 20 causes named.
"""

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from compared import INJECTED, QUIET, SLOW, Factors, a_comparison, a_fake_folder, asked_for
from scalewise import results
from scalewise.analysis.compare import Comparison, compare_sides

FIRST_SEED = 10_000
NO_CLAIM = ("no difference", "cannot tell")
MACHINE = 0.1
"""The standard deviation of the logarithm of the machine's speed, from one study to the next."""
MUCH_SLOWER = 1.3

NOISES: dict[str, Factors] = {
    "1 %": 0.01,
    "2 %": 0.02,
    "3 %": 0.03,
    "0.5, 1, 2 %": {1: 0.005, 2: 0.01, 4: 0.02},
}
"""Between runs: on all numbers of devices, or on 1, 2 and 4 of them."""


def main(pairs: int = 100) -> int:
    """Print the figures; return the exit code."""
    good = True
    print(f"{pairs} pairs each, seeds from {FIRST_SEED}; of 100:")
    print("noise        repeats | noise alone: no claim at first, in the end (no difference)")
    print("                     | found: 3 % slower everywhere (repeats), on 4 devices alone")
    print("                     | machine's speed varies: wrong; 30 % slower: wrong, found")
    for name, noise in NOISES.items():
        for repeats in (2, 3, 5):
            good &= print_row(name, noise, repeats, range(FIRST_SEED, FIRST_SEED + pairs))
    named = named_causes()
    print(f"causes named: {named} of {len(INJECTED)}")
    return 0 if good and named >= 18 else 1


def print_row(name: str, noise: Factors, repeats: int, seeds: range) -> bool:
    """Print what is told apart with this noise; return whether that is what we claim."""

    def share(comparisons: list[Comparison], *verdicts: str) -> float:
        return 100 * sum(each.verdict in verdicts for each in comparisons) / len(comparisons)

    first = [a_comparison(seed, noise, repeats) for seed in seeds]
    ended = [asked_for(seed, noise, repeats) for seed in seeds]
    slowed = [asked_for(seed, noise, repeats, SLOW) for seed in seeds]
    one_slowed = [asked_for(seed, noise, repeats, {4: SLOW}) for seed in seeds]
    quiet, found = [share(each, *NO_CLAIM) for each in (first, ended)], share(slowed, "slower")
    varied = [asked_for(seed, noise, repeats, machine=MACHINE) for seed in seeds]
    varied_slower = [asked_for(seed, noise, repeats, MUCH_SLOWER, MACHINE) for seed in seeds]
    wrong = 100 - share(varied, *NO_CLAIM), share(varied_slower, "faster", "mixed")
    used = statistics.median(each.rows[0].repeats[0] for each in slowed)
    print(
        f"{name:12} {repeats:7} | {quiet[0]:3.0f}, {quiet[1]:3.0f} "
        f"({share(ended, 'no difference'):.0f}) | {found:3.0f} ({used:g}), "
        f"{share(one_slowed, 'slower'):3.0f} | "
        f"{wrong[0]:3.0f}, {wrong[1]:3.0f}, {share(varied_slower, 'slower'):3.0f}",
        flush=True,
    )
    return min(quiet) >= 95 and found >= 90 and max(wrong) <= 5


def named_causes() -> int:
    """Return how many injected causes are named."""
    right = 0
    with tempfile.TemporaryDirectory() as folder:
        (before,) = results.comparison_sides(a_fake_folder(Path(folder) / "before", QUIET))
        for number, (change, cause) in enumerate(INJECTED):
            path = a_fake_folder(Path(folder) / str(number), QUIET | change, seed=200 + number)
            (after,) = results.comparison_sides(path)
            moved = compare_sides(before, after).moved
            named = moved.cause if moved else None
            right += named == cause
            if named != cause:
                print(f"  {change}: moved {cause}, named {named}")
    return right


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
