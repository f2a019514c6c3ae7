"""Loaded row groups: what a row group becomes when it is read, and the memory it stands in."""
