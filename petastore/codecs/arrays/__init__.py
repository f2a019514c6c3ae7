"""Codecs of arrays."""
