"""The first rows of a dataset: read, put in words, drawn, saved, and written as JSON."""
