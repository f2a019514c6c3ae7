"""Laws that codecs, caches, pools and plans must keep; shipped, so that users can hold their own to them.

Needs `hypothesis` and `pytest`; nothing of petastore imports this package.
"""
