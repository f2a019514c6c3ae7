"""Loaded row groups: decoded columns in memory, and the buffers that hold them."""
