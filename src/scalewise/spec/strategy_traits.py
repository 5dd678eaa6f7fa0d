"""What a strategy (``torch.ddp``) declares about itself, readable without its framework.

A plugin registers traits as an entry point of ``scalewise.traits`` named FRAMEWORK.STRATEGY.
"""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

from scalewise import plugins
from scalewise.errors import PluginError, shown

Start = Literal["torchrun", "srun", "mpirun", "horovodrun", "plain", "node", "direct", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTraits:
    """What a strategy splits, what can start it, and how messages explain its communication."""

    starts: tuple[Start, ...] = ("direct",)
    """What may start the strategy's processes, the default first."""
    degree: Literal["shard", "tensor", "pipeline"] | None = None
    """The degree of parallelism that uses all devices, unless the run sets it."""
    within_node: bool = False
    """Whether that degree uses only the devices of one node."""
    single_node: bool = False
    """Whether all devices of a run must be on one node."""
    can_mix: bool = True
    """Whether the strategy can be combined with tensor and pipeline parallelism."""
    whole_gradients: bool = False
    """Whether replicas exchange complete gradients: ``noise_every`` compares these."""
    only_ddp: bool = False
    """Whether PyTorch's DDP does all communication of the ranks."""
    min_version: tuple[int, int] | None = None
    """The oldest version of the framework that has this strategy; None: every supported one."""
    simulated: Literal["all-reduce", "all-gather"] | None = None
    """The collective that the simulator assumes for it; None: it cannot be simulated."""
    transfer: str = ""
    """What is communicated while ranks wait, for messages; empty: "moving gradients"."""
    advice: str = ""
    """How to shorten this waiting, for messages; empty: the advice for data parallelism."""


_torch = partial(StrategyTraits, starts=("torchrun", "srun", "mpirun"))
_fsdp = partial(
    _torch,
    degree="shard",
    min_version=(2, 7),
    transfer="gathering parameters and reducing gradients",
)
_ZERO1_TRANSFER = "moving gradients and updated weights"

BUILT_IN: dict[str, StrategyTraits] = {
    "torch.ddp": _torch(whole_gradients=True, only_ddp=True, simulated="all-reduce"),
    "torch.zero1": _torch(whole_gradients=True, can_mix=False, transfer=_ZERO1_TRANSFER),
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
    "deepspeed.zero1": _torch(transfer=_ZERO1_TRANSFER),
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
"""By framework.strategy; a framework's first strategy is its default."""


def default_strategy(framework: str) -> str:
    """Return a framework's default strategy; ``ddp`` if it has no built-in strategy.

    >>> default_strategy("deepspeed"), default_strategy("fake")
    ('zero1', 'ddp')
    """
    built_in_names = [name for name in BUILT_IN if name.startswith(f"{framework}.")]
    return (built_in_names or list(BUILT_IN))[0].partition(".")[2]


@cache
def traits_of(framework: str, strategy: str) -> StrategyTraits:
    """Return the declared traits, else those of a strategy of this name in another framework."""
    name = f"{framework}.{strategy}"
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name in plugins.available("traits"):
        traits = plugins.load("traits", name)
        if not isinstance(traits, StrategyTraits):
            raise PluginError(f"traits {shown(name)} are no StrategyTraits, but {traits!r:.60}")
        return traits
    namesakes = (value for key, value in BUILT_IN.items() if key.endswith(f".{strategy}"))
    siblings = (value for key, value in BUILT_IN.items() if key.startswith(f"{framework}."))
    # The processes start like those of this framework's other strategies.
    starts = dict.fromkeys(start for sibling in siblings for start in sibling.starts)
    traits = next(namesakes, StrategyTraits())
    return replace(traits, starts=tuple(starts) or StrategyTraits().starts)
