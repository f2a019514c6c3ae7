"""Write datasets: encode rows as columns, write columns to files, and commit files as a dataset."""
