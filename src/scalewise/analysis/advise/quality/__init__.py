"""The work until a model reaches its target, at any global batch, and the time that takes.

target            an amount of work, a loss or an accuracy, and when recorded runs reached it
target_posterior  laws of work to target, weighted by how well they explain the measured points
work_to_target    work, steps and time to target at any batch; where more devices stop paying
batches           the global batch on each number of devices, and the critical batch
time_to_target    the time to target on each number of devices
"""
