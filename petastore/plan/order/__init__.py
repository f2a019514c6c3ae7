"""Row order: epochs, lanes and shards, computed by arithmetic."""
