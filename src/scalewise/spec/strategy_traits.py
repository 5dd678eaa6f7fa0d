"""What a strategy declares about itself, readable without its framework.

Packages register traits in ``scalewise.traits`` by the strategy's name, and import no framework.
"""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

from scalewise import plugins
from scalewise.errors import PluginError

Start = Literal["torchrun", "srun", "mpirun", "horovodrun", "plain", "node", "direct", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTraits:
    """What a strategy splits, what can start it, and how its communication is explained."""

    starts: tuple[Start, ...] = ("direct",)
    """What may start its processes, the default first."""
    degree: Literal["shard", "tensor", "pipeline"] | None = None
    """The degree of parallelism that takes all devices, unless the run says how many."""
    within_node: bool = False
    """Whether that degree takes the devices of one node only."""
    single_node: bool = False
    """Whether a run has to stay within a node."""
    can_mix: bool = True
    """Whether layers or blocks may also be split by tensor and pipeline."""
    whole_gradients: bool = False
    """Whether replicas exchange whole gradients, which ``noise_every`` compares."""
    only_ddp: bool = False
    """Whether ranks communicate inside of PyTorch's DDP only."""
    min_version: tuple[int, int] | None = None
    """The oldest version of the framework, if newer than what the framework needs anyway."""
    simulated: Literal["all-reduce", "all-gather"] | None = None
    """The collectives as which the simulator schedules its communication; None if it cannot."""
    transfer: str = ""
    """What a step that waits for communication is doing; by default, moving gradients."""
    advice: str = ""
    """What to try against such waiting; by default, the advice for data parallelism."""


_torch = partial(StrategyTraits, starts=("torchrun", "srun", "mpirun"))
_fsdp = partial(
    _torch,
    degree="shard",
    min_version=(2, 7),
    transfer="gathering parameters and reducing gradients",
)
_ZERO1 = "moving gradients and updated weights"

BUILT_IN: dict[str, StrategyTraits] = {
    "torch.ddp": _torch(whole_gradients=True, only_ddp=True, simulated="all-reduce"),
    "torch.zero1": _torch(whole_gradients=True, can_mix=False, transfer=_ZERO1),
    "torch.fsdp": _fsdp(simulated="all-gather"),
    "torch.hsdp": _fsdp(within_node=True),
    "torch.tensor": _torch(
        degree="tensor",
        transfer="exchanging what the parts of a layer compute",
        advice="Keep a tensor group inside a node, or split the layers over fewer devices.",
    ),
    "torch.pipeline": _torch(
        degree="pipeline",
        simulated="all-reduce",
        transfer="waiting for other stages: the pipeline's bubble, and what they hand over",
        advice="Try more micro_batches (of a larger batch, if each is one sample already), or, on "
        'a deeper model, pipeline_schedule = "interleaved": both make the bubble smaller.',
    ),
    "deepspeed.zero1": _torch(transfer=_ZERO1),
    "deepspeed.zero0": _torch(),
    "deepspeed.zero2": _torch(),
    "deepspeed.zero3": _torch(),
    "horovod.allreduce": StrategyTraits(
        starts=("horovodrun", "srun", "mpirun", "torchrun", "plain")
    ),
    "tensorflow.mirrored": StrategyTraits(starts=("node",), single_node=True),
    "tensorflow.multiworker": StrategyTraits(starts=("plain", "srun", "mpirun")),
    "jax.sharded": StrategyTraits(starts=("node", "plain", "srun", "mpirun")),
}
"""By framework and name; a framework's first strategy is its default."""


def default_strategy(framework: str) -> str:
    """Return what a framework does unless the run says otherwise.

    >>> default_strategy("deepspeed"), default_strategy("fake")
    ('zero1', 'ddp')
    """
    own = [name for name in BUILT_IN if name.startswith(f"{framework}.")]
    return (own or list(BUILT_IN))[0].partition(".")[2]


@cache
def traits_of(framework: str, strategy: str) -> StrategyTraits:
    """Return the declared traits; else those of a namesake, with the starts of this framework."""
    name = f"{framework}.{strategy}"
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name in plugins.available("traits"):
        traits = plugins.load("traits", name)
        if not isinstance(traits, StrategyTraits):
            raise PluginError(f"traits {name!r} are no StrategyTraits, but {traits!r:.60}")
        return traits
    namesakes = (value for key, value in BUILT_IN.items() if key.endswith(f".{strategy}"))
    siblings = (value for key, value in BUILT_IN.items() if key.startswith(f"{framework}."))
    starts = dict.fromkeys(start for sibling in siblings for start in sibling.starts)
    traits = next(namesakes, StrategyTraits())
    return replace(traits, starts=tuple(starts) or StrategyTraits().starts)
