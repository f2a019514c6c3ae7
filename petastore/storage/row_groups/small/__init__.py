"""Small files: each is read whole with one request, and many of them as one table."""
