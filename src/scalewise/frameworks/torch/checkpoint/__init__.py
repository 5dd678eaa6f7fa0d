"""Checkpoints, weights and what is saved with them."""
