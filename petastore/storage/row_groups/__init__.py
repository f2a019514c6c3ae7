"""Row groups: read the selected columns as verified Arrow tables."""
