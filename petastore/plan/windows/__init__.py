"""Windows of consecutive rows: their start rows, and all rows that they contain."""
