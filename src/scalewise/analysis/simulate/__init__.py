"""One step on machines that nobody has measured, from mechanism.

work        what one rank computes, and when its gradients are ready
network     what a collective takes over links with a latency and a bandwidth
sweep       collectives as doctor timed them, and the links that explain them
spread      what the slowest of many ranks makes of their differences
schedule    computing and exchanging beside each other
strategies  ddp, fsdp and pipelines, as the two queues of one device
step        the step on any topology
inputs      all that from the record of a small run
units       links and sizes as people write them
simulation  the whole answer, held against what was measured
words       what it says
"""

from scalewise.analysis.simulate.inputs import Inputs, inputs, together
from scalewise.analysis.simulate.network import Link, Network
from scalewise.analysis.simulate.rank_work import Bucket, Work, bundled, evenly
from scalewise.analysis.simulate.schedule import Contention, Cores
from scalewise.analysis.simulate.simulated_step import PHASES, Machine, Simulated, simulate
from scalewise.analysis.simulate.simulation import Check, Simulation, exchange, simulation
from scalewise.analysis.simulate.simulation_text import sentences
from scalewise.analysis.simulate.spread import Spread
from scalewise.analysis.simulate.strategy_schedules import Ddp, Fsdp, Pipeline, strategy_of
from scalewise.analysis.simulate.sweep import Measured, Sweep, fitted, measured, read_sweep
from scalewise.analysis.simulate.units import link, size

__all__ = [
    "PHASES",
    "Bucket",
    "Check",
    "Contention",
    "Cores",
    "Ddp",
    "Fsdp",
    "Inputs",
    "Link",
    "Machine",
    "Measured",
    "Network",
    "Pipeline",
    "Simulated",
    "Simulation",
    "Spread",
    "Sweep",
    "Work",
    "bundled",
    "evenly",
    "exchange",
    "fitted",
    "inputs",
    "link",
    "measured",
    "read_sweep",
    "sentences",
    "simulate",
    "simulation",
    "size",
    "strategy_of",
    "together",
]
