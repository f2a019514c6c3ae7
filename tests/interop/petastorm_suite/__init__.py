"""Run Petastorm's own tests against petastore, and compare the failures with a documentation page.

Nothing of Petastorm's is kept in this repository. `python -m tests.interop.petastorm_suite.run /path/to/petastorm`
"""
