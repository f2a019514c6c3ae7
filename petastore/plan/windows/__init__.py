"""Windows: where runs of consecutive rows begin."""
