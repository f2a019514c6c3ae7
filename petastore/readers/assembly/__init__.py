"""Batch assembly: copy rows of loaded row groups to the columns of a span (consecutive batches)."""
