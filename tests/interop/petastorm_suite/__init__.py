"""Petastorm's own tests against petastore: copied from a checkout, run with the switch on, compared with a page.

Nothing of Petastorm's is kept in this repository. `python -m tests.interop.petastorm_suite.run /path/to/petastorm`
"""
