"""Storage requests: deadlines, failures and error messages."""
