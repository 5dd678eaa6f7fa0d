"""How Horovod exchanges gradients: the options of a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from scalewise.validate import choice, positive, typed, whole

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
    adasum: bool = False
    """Whether the steps of ranks are put together by Adasum, in place of a mean of gradients."""
    min_np: int | None = None
    """With how many ranks a run goes on at least, if it may lose any."""

    def __post_init__(self) -> None:
        choice("compression", self.compression, COMPRESSIONS)
        if self.fusion_threshold is not None:
            positive("fusion_threshold", self.fusion_threshold, example=64)
        for name in ("autotune", "adasum"):
            typed(name, getattr(self, name), bool, "true or false")
        if self.min_np is not None:
            whole("min_np", self.min_np, least=1)

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
