"""Defects of Petastorm, each as a check that runs against Petastorm and petastore, and passes without the defect."""
