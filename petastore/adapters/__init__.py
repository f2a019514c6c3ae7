"""Batches as a framework's own tensors: one framework a file, imported only there."""
