"""Windows: readers of runs of consecutive rows."""
