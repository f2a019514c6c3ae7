"""Benchmarks of writing: each way to write, compared with Petastorm and with Spark writing encoded cells."""
