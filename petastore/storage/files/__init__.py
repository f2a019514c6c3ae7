"""Files: where a dataset lies, what is there, and small files as a whole."""
