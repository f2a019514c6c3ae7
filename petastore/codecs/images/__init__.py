"""Codecs of images."""
