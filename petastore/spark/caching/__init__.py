"""DataFrames cached as Parquet, for trainers."""
