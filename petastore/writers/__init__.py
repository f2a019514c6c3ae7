"""Write datasets: encode rows as columns, write files, and commit the files."""
