"""Watch a Keras training script: patches of ``fit``, a callback, steps and samples."""
