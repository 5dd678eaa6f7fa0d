"""How much work a model needs to reach its target at any global batch, and how much time.

target            an amount of work, a loss or an accuracy, and when recorded runs reached it
target_posterior  candidate laws of work to target, weighted by how well they fit the points
work_to_target    work, steps and time to target at any batch; where more devices stop paying
critical_batch    the global batch on each number of devices, and the critical batch
time_to_target    the time to target on each number of devices
"""
