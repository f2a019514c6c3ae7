"""NumPy over the memory of Arrow, and what of Arrow is imported late."""
