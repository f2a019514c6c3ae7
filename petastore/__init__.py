"""Train deep models straight from Parquet."""
