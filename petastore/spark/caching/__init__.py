"""Cache of DataFrames as Parquet files, for training."""
