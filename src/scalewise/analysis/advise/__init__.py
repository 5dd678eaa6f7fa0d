"""How many devices to use for a purpose, and why.

points   work to target as it was measured, checked
weigh    every law that could have made the points, by how well it explains them
target   work, steps and time to target at any batch, and where more devices stop paying
"""

from scalewise.analysis.advise.target import Target, by_noise, published, work_to_target

__all__ = ["Target", "by_noise", "published", "work_to_target"]
