"""Footers of Parquet files: parse their fields and compare them between files."""
