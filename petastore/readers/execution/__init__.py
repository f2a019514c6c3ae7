"""Execution: what a reader runs, as one value, and who loads, assembles and hands out for it."""
