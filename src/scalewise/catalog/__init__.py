"""Published facts: hardware, prices, scaling curves, convergence; each with its source."""
