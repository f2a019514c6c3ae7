"""Compare the results of one test module with the listed failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from tests.interop.petastorm_suite.differences import Differences
from tests.interop.petastorm_suite.one_module import Outcome

__all__ = ["Judged", "judged"]

_ON_PURPOSE: Final = ("on purpose", "by chance")
_FAILING: Final = ("inner", "on purpose")


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """Results of one module, compared with the listed failures."""

    passed: int
    skipped: int
    inner: tuple[Outcome, ...]
    """Failed tests that are listed as tests of Petastorm's internals."""

    on_purpose: tuple[Outcome, ...]
    """Failed tests that are listed as different on purpose, or as flaky."""

    unlisted: tuple[Outcome, ...]
    """Failed tests that are not listed."""

    outdated: tuple[str, ...]
    """Listed tests that pass or do not exist."""

    @property
    def is_as_listed(self) -> bool:
        """Whether all results are as listed."""
        return not (self.unlisted or self.outdated)


def judged(module: str, outcomes: Sequence[Outcome], listed: Differences, *, all_ran: bool = True) -> Judged:
    """Compare the results of a module with the listed failures.

    Args:
        module: Its name without folder and `.py`.
        outcomes: Results of its tests.
        listed: The expected failures.
        all_ran: False if only some of its tests were run, so that listed tests may be missing.
    """
    failed = {one: listed.kind_of(module, one.test) for one in outcomes if one.ended == "failed"}
    passed = [one for one in outcomes if one.ended == "passed"]
    names = {name for one in outcomes for name in (one.test, one.test.partition("[")[0])}
    missing = [test for of, test in listed.tests if of == module and all_ran and test not in names]
    return Judged(
        passed=len(passed),
        skipped=sum(one.ended == "skipped" for one in outcomes),
        inner=tuple(one for one, kind in failed.items() if kind == "inner"),
        on_purpose=tuple(one for one, kind in failed.items() if kind in _ON_PURPOSE),
        unlisted=tuple(one for one, kind in failed.items() if kind is None),
        outdated=(
            *(f"{one.test} passes" for one in passed if listed.kind_of(module, one.test) in _FAILING),
            *(f"{test} is not there" for test in missing),
        ),
    )
