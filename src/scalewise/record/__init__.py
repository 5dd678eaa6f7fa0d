"""What happened: the run folder. ``write`` and ``close`` need only the standard library."""
