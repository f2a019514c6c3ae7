"""A package, so that the `tests` that some wheels leave in site-packages is not taken for this one."""
