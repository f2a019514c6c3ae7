"""Contenders, one per module. Each is imported in its own environment, which may have no package but NumPy.

A module has

* `PACKAGES`: names of distributions whose versions belong to its results,
* `write(workload, values, folder)`, where the format is made by it: its own best format of the same values,
* `batches(workload, folder, **options)`: an endless iterator over batches, epoch after epoch, each a dict from column
  to tensor, or the number of its rows where there is nothing to hand over. Closing it ends everything that it started.
"""
