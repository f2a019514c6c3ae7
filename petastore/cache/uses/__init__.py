"""What readers will use when: the next use of each entry, the files that tell it, and what comes of it."""
