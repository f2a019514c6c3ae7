"""Image files as datasets: `from_folder` makes rows of a folder of PNG and JPEG files."""

from petastore.images.folder import ImageFolder, from_folder

__all__ = ["ImageFolder", "from_folder"]
