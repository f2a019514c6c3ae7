"""Writing of datasets with Spark."""
