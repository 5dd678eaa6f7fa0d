"""Timings and counts of a few early steps, and a benchmark of collectives."""
