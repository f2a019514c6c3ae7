"""What reading from far away and keeping data near costs, row by row: `python -m benchmarks.storage --help`."""
