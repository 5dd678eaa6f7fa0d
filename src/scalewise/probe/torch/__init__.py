"""What the trainer and the watcher share about PyTorch; imported only where it is loaded."""
