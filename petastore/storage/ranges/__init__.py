"""Files of object stores and web servers, read by few ranges of bytes, each of the version that was planned."""
