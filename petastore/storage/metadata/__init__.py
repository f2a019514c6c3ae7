"""Dataset metadata: manifests and row-group indexes."""
