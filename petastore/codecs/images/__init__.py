"""Image codecs: `CompressedImageCodec` (PNG and JPEG), and `ImageDecode`.

`ImageDecode` has options to crop, resize and convert images while they are decoded.
"""
