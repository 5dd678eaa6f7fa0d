"""Ways to spread a model over devices: one function in one file each."""
