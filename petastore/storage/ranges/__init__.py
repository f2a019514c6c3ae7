"""Range reads of remote files (object stores, web servers).

All byte ranges of a file are read from the same version of the file.
"""
