"""Checks of known defects of Petastorm, which run with Petastorm or petastore and pass without the defect."""
