"""Every sentence about a result: one module per kind of answer."""
