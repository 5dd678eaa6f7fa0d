"""The work until a model is good enough, at any global batch, and the time that it takes.

aim        what a model is trained for
reached    when recorded runs reached an aim
points     work to target as it was measured, checked
weigh      every law that could have made the points, by how well it explains them
target     work, steps and time to target at any batch, and where more devices stop paying
batches    the global batch on each number of devices, and the critical one
to_target  the time until the target, at each number of devices
"""
