"""Nothing here is a test: these scripts are started by tests, each in its own processes."""

collect_ignore_glob = ["*.py"]
