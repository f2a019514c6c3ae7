"""Compare data loaders on the same data and machine, measured in turns: `python -m benchmarks.bench --help`."""
