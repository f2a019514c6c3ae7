"""The command line: arguments in, text out. `petastore --help` lists what it can do."""
