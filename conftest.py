"""Files that are no tests here: they import an engine that has an environment of its own."""

collect_ignore_glob = [
    "src/scalewise/frameworks/jax/*",
    "src/scalewise/frameworks/tensorflow/*",
    "src/scalewise/probe/tensorflow/*",
    "src/scalewise/watch/keras/*",
    "tests/devices_alike.py",
    "tests/keras_lines.py",
    "tests/one_process.py",
]
