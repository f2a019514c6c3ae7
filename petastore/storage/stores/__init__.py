"""Stores: one interface for object stores, web servers, fsspec and Arrow.

Object stores and web servers are accessed with obstore.
"""
