"""Data sets, batches and loaders."""
