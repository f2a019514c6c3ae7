"""Programs in the style of users, which mypy checks, and which are never imported or run.

`make check` type-checks them with everything else. A line that mypy must reject ends with `# type: ignore[CODE]`. mypy
--strict reports both an error without such a comment, and a comment without an error.
"""
