"""Bad rows: find the rows that cannot be decoded or transformed, leave them out, and write them to a quarantine."""
