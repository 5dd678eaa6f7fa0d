"""What is known before measuring: data files, each row with its source."""
