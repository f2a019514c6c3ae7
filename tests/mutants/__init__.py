"""Mutation tests: small changes of the source (mutants) that some test must detect; `make mutants`."""
