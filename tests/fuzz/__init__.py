"""Fuzz tests of everything that reads foreign bytes; `make fuzz`."""
