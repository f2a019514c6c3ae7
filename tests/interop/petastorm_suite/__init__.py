"""Run Petastorm's own tests against petastore, and compare the failures with a documentation page.

This repository contains no code of Petastorm. `python -m tests.interop.petastorm_suite.run /path/to/petastorm`
"""
