"""The options of a run for Horovod's gradient exchange."""

from collections.abc import Mapping
from dataclasses import dataclass

from scalewise.validate import check_choice, check_integer, check_positive, check_type

COMPRESSIONS = ("none", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Horovod's settings; None means Horovod's default."""

    compression: str = "none"
    """Gradient compression."""
    fusion_threshold: float | None = None
    """MiB of gradients that are exchanged at once, at most."""
    autotune: bool = False
    """Whether Horovod tunes its settings during the training."""
    adasum: bool = False
    """Whether Adasum combines the updates of ranks, instead of an average of gradients."""
    min_np: int | None = None
    """The fewest ranks with which an elastic run continues; None: not elastic."""

    def __post_init__(self) -> None:
        check_choice("compression", self.compression, COMPRESSIONS)
        if self.fusion_threshold is not None:
            check_positive("fusion_threshold", self.fusion_threshold, example=64)
        for name in ("autotune", "adasum"):
            check_type(name, getattr(self, name), bool, "true or false")
        if self.min_np is not None:
            check_integer("min_np", self.min_np, minimum=1)

    def variables(self) -> Mapping[str, str]:
        """Return the environment variables that Horovod reads when it starts.

        >>> Settings(fusion_threshold=2, autotune=True).variables()
        {'HOROVOD_FUSION_THRESHOLD': '2097152', 'HOROVOD_AUTOTUNE': '1'}
        """
        result = {}
        if self.fusion_threshold is not None:
            result["HOROVOD_FUSION_THRESHOLD"] = str(int(self.fusion_threshold * 2**20))
        if self.autotune:
            result["HOROVOD_AUTOTUNE"] = "1"
        return result


DEFAULT_SETTINGS = Settings()
