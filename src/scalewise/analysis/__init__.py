"""Answers from measured runs: measure, explain, predict, simulate, advise."""
