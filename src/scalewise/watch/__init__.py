"""Measure somebody else's program without changing it."""
