"""Batches of a plan: global batches, spans (groups of batches), and memory."""
