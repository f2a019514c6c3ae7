"""Writing datasets: rows to encoded columns, columns to files, files to a committed dataset."""
