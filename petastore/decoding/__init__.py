"""Decoding: convert stored cells of columns to arrays, in bounded, reused memory."""
