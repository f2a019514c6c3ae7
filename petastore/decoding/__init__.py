"""Decoding: convert stored cells of a column to arrays, in bounded memory that is reused."""
