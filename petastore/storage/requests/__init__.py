"""Requests to storage: deadlines, failures, and how both are told."""
