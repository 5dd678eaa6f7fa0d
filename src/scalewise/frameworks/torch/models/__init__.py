"""The models of the built-in workloads, and how models are divided into blocks."""
