"""Verification and repair of datasets: damaged files, wrong statistics, cells that cannot be decoded, lost metadata."""
