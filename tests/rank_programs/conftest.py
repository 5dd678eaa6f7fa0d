"""Nothing here is a test: tests start these programs as ranks, each in its own processes."""

collect_ignore_glob = ["**"]
