"""What happened: the run folder.

``schema``, ``write``, ``rank_tail``, ``failure_cause``, ``close``, ``log`` and ``checkpoints``
keep to the standard library and Python 3.10: they live in other people's environments.
"""
