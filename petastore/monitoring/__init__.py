"""Monitoring of readers: which stage training waits for, progress displays, and exporters of metrics."""
