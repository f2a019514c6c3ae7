"""Batches of a plan: spans (groups of batches), the last batch of an epoch, and memory."""
