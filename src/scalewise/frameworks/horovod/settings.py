"""How Horovod exchanges gradients: the options of a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from scalewise.checks import choice, positive, typed

COMPRESSIONS = ("none", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Horovod's settings; nothing means as Horovod itself does."""

    compression: str = "none"
    """In which way gradients are made smaller for the exchange."""
    fusion_threshold: float | None = None
    """The most MiB of gradients that are exchanged at once."""
    autotune: bool = False
    """Whether Horovod tries other settings while it trains, and keeps the best."""

    def __post_init__(self) -> None:
        choice("compression", self.compression, COMPRESSIONS)
        if self.fusion_threshold is not None:
            positive("fusion_threshold", self.fusion_threshold, example=64)
        typed("autotune", self.autotune, bool, "true or false")

    def variables(self) -> Mapping[str, str]:
        """Return the variables that Horovod reads when it starts.

        >>> Settings(fusion_threshold=2, autotune=True).variables()
        {'HOROVOD_FUSION_THRESHOLD': '2097152', 'HOROVOD_AUTOTUNE': '1'}
        """
        told = {}
        if self.fusion_threshold is not None:
            told["HOROVOD_FUSION_THRESHOLD"] = str(int(self.fusion_threshold * 2**20))
        if self.autotune:
            told["HOROVOD_AUTOTUNE"] = "1"
        return told


AS_HOROVOD_DOES = Settings()
