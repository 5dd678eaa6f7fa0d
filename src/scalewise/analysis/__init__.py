"""Turn records into understanding: measure → explain → predict → advise."""
