"""Footers of Parquet files, read field by field and held against each other."""
