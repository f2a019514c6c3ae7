"""Decoding: the stored cells of a column become arrays, in memory that is bounded and used again."""
