"""Assembly: rows of loaded row groups become the columns of a span."""
