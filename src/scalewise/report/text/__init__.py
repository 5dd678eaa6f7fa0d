"""Results as sentences: one module per kind of result."""
