"""Compare this tree with another commit: the same data and environment, measured in turns."""
