"""Datasets written by Spark."""
