"""What writing costs, by each way of it, beside Petastorm's and beside Spark writing cells that are encoded already."""
