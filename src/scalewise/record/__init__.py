"""The run folder; what ``worker_zip`` packs needs only the standard library of Python 3.10."""
