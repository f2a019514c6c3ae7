"""Command line: parse arguments and print text.

`petastore --help` lists the commands.
"""
