"""Codecs of images: `CompressedImageCodec` (PNG, JPEG) and `ImageDecode` (crop and resize while decoding)."""
