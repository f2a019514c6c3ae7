"""Codecs of NumPy arrays: `NdarrayCodec` (npy) and `CompressedNdarrayCodec` (npz)."""
