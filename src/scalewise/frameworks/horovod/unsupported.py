"""Refuse what Adasum and elastic runs cannot do, before any rank starts."""

from scalewise.errors import SpecError
from scalewise.spec import RunSpec


def refuse_adasum(spec: RunSpec) -> None:
    """Refuse Adasum where it would fail, or silently do something else."""
    world = spec.topology.world
    if world & (world - 1):
        raise SpecError(
            f"adasum needs a power of two of ranks, and {spec.topology} has {world}",
            hint="take 2, 4, 8 … devices",
        )
    unsupported = {
        "clip": spec.clip is not None,
        "warmup_steps": bool(spec.warmup_steps),
        "warmup_epochs": bool(spec.warmup_epochs),
        f"schedule = {spec.schedule!r}": spec.schedule != "constant",
        'precision = "fp16"': spec.precision == "fp16",
    }
    for field, is_set in unsupported.items():
        if is_set:
            raise SpecError(
                f"with adasum each rank does its step inside backward, too early for {field}",
                hint=f"leave {field} out, or adasum",
            )
    if spec.started_by != "mpirun":
        raise SpecError(
            f"adasum goes over MPI, and {spec.started_by} starts no ranks of MPI",
            hint='write start = "mpirun"',
        )
    if not _has_mpi():
        raise SpecError(
            "adasum needs a Horovod with MPI, and this one was built without",
            hint="install MPI's headers, for example libopenmpi-dev, and build it anew: make "
            "horovod, in a checkout of scalewise, does",
        )


def _has_mpi() -> bool:
    """Return whether this Horovod was built with MPI."""
    import horovod.torch as hvd

    return bool(hvd.mpi_built())


def refuse_elastic(spec: RunSpec) -> None:
    """Refuse an elastic run that could not continue with fewer ranks."""
    min_np, world = int(spec.options["min_np"]), spec.topology.world
    if min_np > world:
        raise SpecError(
            f"min_np is {min_np}, and {spec.topology} has {world} ranks",
            hint=f"with min_np = {world - 1} it continues when one is lost",
        )
    if spec.started_by != "horovodrun" or spec.topology.nodes > 1:
        raise SpecError(
            "min_np is for ranks that horovodrun starts on one machine",
            hint="leave start out, and take one node",
        )
    if not spec.steps:
        raise SpecError(
            "with fewer ranks an epoch would have more steps: an elastic run says steps",
            hint="for example steps = 1000, in place of epochs or samples",
        )
    if spec.ema:
        raise SpecError("ema does not go together with min_np", hint="leave one of them out")
