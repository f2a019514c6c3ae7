"""`python -m petastore.cli`: the same as `petastore`."""

from petastore.cli.main import main

main()
