"""These scripts train when they are imported; test_port.py ports and runs them."""

collect_ignore_glob = ["*.py"]
