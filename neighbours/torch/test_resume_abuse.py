"""Tests of states loaded late, twice, into workers, at an epoch's end or with a filter, on two ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neighbours.conftest import Run
from neighbours.torch.programs.gathered import found

pytestmark = pytest.mark.timeout(300)

LATE = "ReaderClosedError: this iterator has ended, because load_state_dict"
OTHER_DATA = "InvalidArgumentError: the state must belong to the data that is read"


def on_two_ranks(run: Run, program: str, url: str, folder: Path) -> dict[str, list[Any]]:
    """Return the results of each rank by case."""
    file = f"neighbours/torch/programs/{program}.py"
    return found(run(["torchrun", "--standalone", "--nproc-per-node=2", file, url, str(folder)]))


def test_accelerate_resume_is_exact_or_raises(run: Run, numbered: Callable[..., str], tmp_path: Path) -> None:
    cases = on_two_ranks(run, "abused_accelerate", numbered(), tmp_path)
    for rank in range(2):
        of_rank = {case: ranks[rank] for case, ranks in cases.items()}
        first, second, third = of_rank["whole"]
        filtered, filtered_then = of_rank["filtered"]
        assert of_rank["late"][0].startswith(LATE)
        assert of_rank["late"][1:] == [first[3:], second]
        assert of_rank["twice"] == [first[5:], second, first[3:], second]
        assert of_rank["into_workers"] == [first, first[3:], second]
        assert of_rank["into_workers_of_torch"] == ["the rest"]
        assert of_rank["at_the_end"] == [second, third]
        assert of_rank["behind_a_filter"] == [filtered[3:], filtered_then]
        assert of_rank["behind_another_filter"][0].startswith(OTHER_DATA)


def test_lightning_resume_is_exact_or_raises(run: Run, numbered: Callable[..., str], tmp_path: Path) -> None:
    cases = on_two_ranks(run, "abused_lightning", numbered(), tmp_path)
    for rank in range(2):
        of_rank = {case: ranks[rank] for case, ranks in cases.items()}
        first, second, third = (of_rank["whole"][epoch] for epoch in "012")
        filtered, filtered_then = (of_rank["filtered"][epoch] for epoch in "01")
        assert of_rank["late"].startswith(LATE)
        from_third, from_fifth, again = of_rank["twice"]
        assert from_third == {"0": first[3:], "1": second}
        assert from_fifth == again == {"0": first[5:], "1": second}
        assert of_rank["into_workers"] == from_third
        assert of_rank["at_the_end"] == {"1": second, "2": third}
        assert of_rank["behind_a_filter"] == {"0": filtered[3:], "1": filtered_then}
        assert of_rank["behind_another_filter"].startswith(OTHER_DATA)
