"""Code that the trainer and the watcher share; only processes that use TensorFlow import it."""
