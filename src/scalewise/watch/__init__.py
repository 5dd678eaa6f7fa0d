"""Measure a user's program without changing it."""
