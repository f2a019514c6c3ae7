"""Mutation tests: small changes of the source that some test must notice; `make mutants`."""
