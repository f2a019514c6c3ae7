"""Programs in the style of users, which mypy checks, and which are never imported or run.

`make check` type-checks them with everything else. A line that mypy must reject ends with `# type: ignore[CODE]`: mypy
--strict reports an error that no comment names, and also a comment that no error needs.
"""
