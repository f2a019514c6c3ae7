"""Execution of a reader: load, assemble and yield rows."""
