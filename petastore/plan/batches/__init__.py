"""Batches of a plan: spans, tails, and the memory that they take."""
