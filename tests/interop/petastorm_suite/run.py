"""Run Petastorm's own tests with petastore, and print differences from the failures that the page lists.

python -m tests.interop.petastorm_suite.run /path/to/petastorm [--only test_unischema test_ngram]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from petastore.errors import InvalidArgumentError
from petastore.spark.java import use_java
from tests.interop.petastorm_suite import differences
from tests.interop.petastorm_suite.copies import copied, release_of, test_modules_of
from tests.interop.petastorm_suite.differences import Differences
from tests.interop.petastorm_suite.judged import Judged, judged
from tests.interop.petastorm_suite.one_module import environment_for, run
from tests.interop.petastorm_suite.substitutions import SUBSTITUTIONS

__all__ = ["main"]

_REPOSITORY = Path(__file__).resolve().parents[3]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected modules, or all; return 1 if a result differs from the listed failures."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        release = release_of(asked.source)
        listed = differences.read(asked.page.read_text(encoding="utf-8"))
        modules = _chosen(test_modules_of(asked.source), listed, asked.only)
        with tempfile.TemporaryDirectory(prefix="petastorms-tests-") as temporary:
            folder = asked.keep or Path(temporary)
            copied(asked.source, folder, SUBSTITUTIONS)
            use_java()
            all_as_listed = [_as_listed(module, folder, listed, asked) for module in modules]
    except InvalidArgumentError as error:
        parser.error(str(error))
    print(_closing_line(release, [one for one in all_as_listed if one is not None], len(modules), listed))
    return int(any(one is None or not one.is_as_listed for one in all_as_listed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("petastorm-tests", description=__doc__.split("\n\n")[0])
    parser.add_argument("source", type=Path, help="a checkout of https://github.com/uber/petastorm; it is not changed")
    parser.add_argument("--only", nargs="+", metavar="MODULE", help="such as test_unischema; all if left out")
    parser.add_argument("--tests", default="", metavar="EXPRESSION", help="of these modules' tests, as pytest's -k")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy to this new folder, and leave it there")
    parser.add_argument("--verbose", action="store_true", help="print what pytest prints, too")
    parser.add_argument("--page", type=Path, default=_REPOSITORY / differences.PAGE, help=argparse.SUPPRESS)
    return parser


def _chosen(modules: list[str], listed: Differences, only: list[str] | None) -> list[str]:
    """Return the modules to run."""
    gone = sorted(set(listed.modules) - set(modules))
    if gone:
        raise InvalidArgumentError(
            f"{', '.join(gone)} is listed in {differences.PAGE}, and Petastorm has no such module"
        )
    runnable = [module for module in modules if module not in listed.modules]
    if only is None:
        return runnable
    unknown = sorted(set(only) - {Path(module).stem for module in runnable})
    if unknown:
        raise InvalidArgumentError(
            f"no module {', '.join(unknown)} is run; there are {', '.join(map(_name, runnable))}"
        )
    return [module for module in runnable if _name(module) in only]


def _name(module: str) -> str:
    return Path(module).stem


def _as_listed(module: str, folder: Path, listed: Differences, asked: argparse.Namespace) -> Judged | None:
    """Run one module and print its results; return None if it did not finish."""
    ran = run(module, folder, environment_for(folder, os.environ), only=asked.tests)
    if asked.verbose:
        print(ran.printed)
    if ran.trouble:
        print(f"{_name(module)}: {ran.trouble}", flush=True)
        return None
    found = judged(_name(module), ran.outcomes, listed, all_ran=not asked.tests)
    print(
        f"{_name(module)}: {found.passed} passed, {len(found.unlisted)} failed, {len(found.inner)} of inner parts, "
        f"{len(found.on_purpose)} different on purpose, {found.skipped} skipped, {ran.seconds:,.0f} s",
        flush=True,
    )
    for kind, tests in (("inner part", found.inner), ("on purpose", found.on_purpose)):
        for one in tests:
            print(f"  {kind}: {one.test}")
    for one in found.unlisted:
        print(f"  failed: {one.test}: {one.said}")
    for entry in found.outdated:
        print(f"  listed in {differences.PAGE}, but {entry}")
    return found


def _closing_line(release: str, found: Sequence[Judged], modules: int, listed: Differences) -> str:
    def count(what: str) -> int:
        return sum(len(getattr(one, what)) for one in found)

    skipped, wrong = sum(one.skipped for one in found), count("unlisted") + count("outdated")
    parts = [
        f"{sum(one.passed for one in found):,} tests passed",
        f"{count('inner')} {_are(count('inner'))} of inner parts",
        f"{count('on_purpose')} {'differs' if count('on_purpose') == 1 else 'differ'} on purpose",
        f"{skipped} {_were(skipped)} skipped",
    ]
    ends = [f"{_modules(len(listed.modules))} of inner parts {_were(len(listed.modules))} not run"]
    if len(found) < modules:
        ends.append(f"{modules - len(found)} came to no end")
    ends.append(f"{wrong} {_are(wrong)} not as listed" if wrong else "all is as listed")
    return f"petastorm-tests: Petastorm {release}, {_modules(modules)}: {', '.join(parts)}; {'; '.join(ends)}"


def _modules(number: int) -> str:
    return f"{number} module{'' if number == 1 else 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


if __name__ == "__main__":
    sys.exit(main())
