"""The models of the built-in workloads: one function in one file each."""
