"""Programs as users write them, for mypy alone: nothing imports or runs them.

`make check` type-checks them with everything else. A line that mypy must reject ends with `# type: ignore[CODE]`: mypy
--strict reports an error that no comment names, and also a comment that no error needs.
"""
