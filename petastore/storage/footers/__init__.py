"""Footers of Parquet files: read, parse, verify and cache them."""
