"""What petastore does for code and data that were made for other libraries."""
