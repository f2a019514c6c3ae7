"""Data loaders side by side: the same data, the same machine, in turns. `python -m benchmarks.bench --help`."""
