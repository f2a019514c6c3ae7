"""Copying datasets as stored cells: the copy that was asked for, and the copy in this process."""
