"""Files of a dataset: locations, listings, and small files read whole."""
