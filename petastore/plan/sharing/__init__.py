"""Divide a plan among the worker processes of a loader, and save the state of the workers."""
