"""Write and read checkpoints and weights; keep a moving average of the weights."""
