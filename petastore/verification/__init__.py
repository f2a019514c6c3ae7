"""Verification and repair of datasets.

`verify` finds damaged files, wrong statistics and cells that cannot be decoded; `repair` rebuilds lost metadata.
"""
