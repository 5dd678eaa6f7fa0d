"""Facts known before measuring: data files, each row with its source."""
