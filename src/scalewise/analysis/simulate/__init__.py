"""Simulate a step on more devices or other links than measured, from the record of a small run.

rank_work           what one rank computes, and when its gradients are ready
network             seconds of a collective over links with a latency and a bandwidth
sweep               collectives that `scalewise doctor` timed, and links fitted to them
spread              how much step times vary, and how long the slowest of many ranks takes
schedule            computation and communication that run concurrently
strategy_schedules  ddp, fsdp and pipelines: what one device computes and communicates
simulated_step      the step on any topology
inputs              rank_work and spread, read from the record of a small run
units               parse text such as 25GB/s,20us and 100MB
simulation          calls the modules above; simulated steps compared with measured ones
"""

from scalewise.analysis.simulate.inputs import Note, SimulationInputs, concurrent_steps, load_inputs
from scalewise.analysis.simulate.network import Link, Network
from scalewise.analysis.simulate.rank_work import Bucket, Work, even_buckets, make_buckets
from scalewise.analysis.simulate.schedule import Contention, Cores
from scalewise.analysis.simulate.simulated_step import PHASES, Machine, SimulatedStep, simulate
from scalewise.analysis.simulate.simulation import Check, Simulation, make_exchange, simulate_curve
from scalewise.analysis.simulate.spread import Spread
from scalewise.analysis.simulate.strategy_schedules import Ddp, Fsdp, Pipeline, strategy_from_spec
from scalewise.analysis.simulate.sweep import (
    MeasuredExchange,
    Sweep,
    fit_exchange,
    fit_link,
    parse_sweep,
)
from scalewise.analysis.simulate.units import parse_link, parse_size

__all__ = [
    "PHASES", "Bucket", "Check", "Contention", "Cores", "Ddp", "Fsdp", "Link", "Machine",
    "MeasuredExchange", "Network", "Note", "Pipeline", "SimulatedStep", "Simulation",
    "SimulationInputs", "Spread", "Sweep", "Work", "concurrent_steps", "even_buckets",
    "fit_exchange", "fit_link", "load_inputs", "make_buckets", "make_exchange", "parse_link",
    "parse_size", "parse_sweep", "simulate", "simulate_curve", "strategy_from_spec",
]  # fmt: skip
