"""Range reads of files in object stores and on web servers, always of the planned file version."""
