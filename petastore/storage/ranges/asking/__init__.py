"""Calls of a storage: made several at a time, again while that may help, and counted."""
