"""Row order of an epoch, its lanes and its shards, computed by arithmetic.

A lane is one of the sequences of row groups that an epoch interleaves.
"""
