"""Windows of consecutive rows: the rows at which they start, and the rows that they contain."""
