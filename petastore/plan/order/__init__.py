"""The order of rows: epochs, lanes and shards, as arithmetic."""
