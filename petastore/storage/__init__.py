"""Where a dataset lies and what is in it: locations, footers, the manifest, row groups. All dataset IO is here."""
