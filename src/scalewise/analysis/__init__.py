"""Answers from the records of runs: measure, explain, predict, simulate, advise."""
