"""What the trainer and the watcher share about TensorFlow; imported only where it is loaded."""
