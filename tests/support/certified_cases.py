"""Run the cases of ``certificate_cases`` and certify each against its reference on one device."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from certificate_cases import Base, Clean, PlantedFault, program, reference
from certificate_runs import watch
from scalewise.analysis.certify import Certificate, SketchedRun, certify, sketched_run
from scalewise.record.read import read_run
from scalewise.spec import RunSpec


@dataclass(frozen=True, slots=True)
class CaseRuns:
    """Runs cases in a folder; each reference runs once, in both orders."""

    folder: Path
    _references: dict[tuple[str, ...], list[SketchedRun]] = field(default_factory=dict)

    def certificate(self, case: Clean | PlantedFault) -> Certificate:
        """Return the certificate of a case."""
        fault = case.name if isinstance(case, PlantedFault) else ""
        candidate = self.run(program(case.base, fault, self.folder), case.ranks)
        return certify(*self.references(case.base), candidate)

    def references(self, base: Base) -> list[SketchedRun]:
        """Return the script on one device, with samples in the usual and in the reversed order."""
        words = reference(base)
        if words not in self._references:
            self._references[words] = [self.run(words, 1, order) for order in ("usual", "reversed")]
        return self._references[words]

    def run(self, words: tuple[str, ...], ranks: int, order: str = "usual") -> SketchedRun:
        """Return one run in certificate mode; a run that the folder has already is only read."""
        values = {"topology": f"1x{ranks}", "program": words, "certify_order": order}
        spec = RunSpec.from_dict({**values, "certify": True})
        folder = self.folder / spec.id
        if (folder / "outcome.json").exists():
            return sketched_run(read_run(folder, spec))
        shutil.rmtree(folder, ignore_errors=True)  # Of a run that was stopped.
        script, *args = words
        return sketched_run(watch(folder, ranks, Path(script), *args, certify_order=order))


def is_found(fault: PlantedFault, certificate: Certificate) -> bool:
    """Return whether a certificate names the fault: its first step, and its cause or its layer."""
    if certificate.verdict != fault.verdict:
        return False
    if certificate.step not in (None, fault.step):
        return False
    in_layer = bool(fault.layers) and (certificate.layer or "").startswith(fault.layers)
    return certificate.cause in fault.causes or in_layer
