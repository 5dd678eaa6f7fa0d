"""What a certificate finds, and what it reports where nothing is wrong.

    python benchmarks/certificate.py [--faults | --clean] [--only TEXT] [--part 1/4]

Runs every planted fault and every clean training of ``tests/support/certificate_cases.py``: small
models, 24 steps, 1 to 8 ranks with Gloo. Each is compared with the same script without its fault on
one device. A fault is found if the verdict names its first step, and its cause or its layer. A
clean training that is not certified as equal is a false alarm. Every line shows the arguments, with
the seed. Exits with 1 when a claim does not hold.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import start_ranks
from certificate_cases import FAULTS, Clean, PlantedFault, clean_cases, reference
from certified_cases import CaseRuns, is_found
from scalewise.analysis.certify import Certificate

Case = TypeVar("Case", Clean, PlantedFault)
MAX_MISSED_SHARE = 2 / 30
"""At least 28 of 30 faults must be found."""


def main() -> None:
    """Run the cases and compare them with what we claim."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", action="store_true", help="only planted faults")
    parser.add_argument("--clean", action="store_true", help="only clean trainings")
    parser.add_argument("--only", default="", help="only cases whose line has this text")
    parser.add_argument("--part", default="1/1", help="1/4: only the first of four parts")
    parser.add_argument("--folder", type=Path, help="where runs are kept, and read again")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        start_ranks.IMPORTED.append("scalewise.watch.torch.hooks")  # Once, not in every rank.
        runs = CaseRuns(folder)
        missed = [] if args.clean else find_faults(runs, chosen(FAULTS, args))
        alarms = [] if args.faults else check_clean(runs, chosen([*clean_cases()], args))
    sys.exit(len(missed) > MAX_MISSED_SHARE * len(FAULTS) or bool(alarms))


def chosen(cases: Sequence[Case], args: argparse.Namespace) -> list[Case]:
    """Return the cases to run; those of one reference are all in the same part."""
    part, parts = map(int, args.part.split("/"))
    references = [*dict.fromkeys(reference(case.base) for case in cases)]
    return [
        case
        for case in cases
        if args.only in str(case) and references.index(reference(case.base)) % parts == part - 1
    ]


def find_faults(runs: CaseRuns, faults: Sequence[PlantedFault]) -> list[PlantedFault]:
    """Run the planted faults; return those that were not found."""
    missed = []
    for fault in faults:
        certificate = runs.certificate(fault)
        found = is_found(fault, certificate)
        missed += [] if found else [fault]
        print(f"{'found ' if found else 'MISSED'} {fault}: {described(certificate)}", flush=True)
    print(f"{len(faults) - len(missed)} of {len(faults)} planted faults found")
    return missed


def check_clean(runs: CaseRuns, cases: Sequence[Clean]) -> list[Clean]:
    """Run the clean trainings; return those that are not certified as equal."""
    alarms, undecided = [], []
    for case in cases:
        certificate = runs.certificate(case)
        alarms += [case] if certificate.verdict == "differs" else []
        undecided += [case] if certificate.verdict == "cannot tell" else []
        print(f"clean {case}: {described(certificate)}", flush=True)
    print(
        f"{len(cases)} clean trainings: {len(alarms)} false alarms, "
        f"{len(undecided)} that could not be decided"
    )
    return alarms + undecided


def described(certificate: Certificate) -> str:
    """Return the verdict in one line."""
    checked = certificate.checked
    if certificate.verdict == "equal":
        return (
            f"equal in {len(checked.steps)} steps and {checked.layers} layers, largest difference "
            f"{checked.largest:.1e} of {checked.tolerance:.1e}"
        )
    factor = f", factor {certificate.factor:.4g}" if certificate.factor else ""
    layers = f"{certificate.layer} (of {len(certificate.differing)} that differ)"
    return f"{certificate.verdict}, {certificate.cause}, step {certificate.step}, {layers}{factor}"


if __name__ == "__main__":
    main()
