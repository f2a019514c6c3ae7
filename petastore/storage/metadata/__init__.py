"""Metadata of a dataset: manifests and indexes."""
