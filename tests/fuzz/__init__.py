"""Fuzz tests of all readers of untrusted bytes; `make fuzz`."""
