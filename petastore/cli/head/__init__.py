"""`petastore head`: the first rows of a dataset, on the terminal, as JSON and as files of images."""
