"""Where tasks are killed, tried again, or run twice by speculation, each row is written once: classic and Connect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.programs import Programs, running

KINDS = ["classic", "connect"]
SECONDS = 300

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(480)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Programs]:
    """What each kind of session left; two run at once."""
    program = "tests.spark.hostile"
    with running(program, ["twice", *KINDS], tmp_path_factory, repository, seconds=SECONDS) as programs:
        yield programs


@pytest.fixture(params=KINDS)
def killed(request: pytest.FixtureRequest, programs: Programs) -> Any:
    return programs[request.param].result().facts


@pytest.fixture
def twice(programs: Programs) -> Any:
    return programs["twice"].result().facts


def test_the_data_source_gives_each_row_once_where_tasks_are_killed_and_tried_again(killed: Any) -> None:
    assert killed["source_killed"] == {"whole": True, "left": [], "indexed": True}


def test_a_block_gives_each_row_once_where_tasks_are_killed_and_tried_again(killed: Any) -> None:
    found = killed["block_killed"]
    assert {"rows", "columns"} <= found.keys()
    assert all(one == {"whole": True, "left": []} for one in found.values())


def test_rows_of_an_rdd_are_there_once_where_its_tasks_are_killed(programs: Programs) -> None:
    assert "rdd" in programs["classic"].result().facts["block_killed"]


@pytest.mark.parametrize("way", ["source_lost_for_good", "block_lost_for_good"])
def test_a_task_that_is_lost_for_good_fails_the_job_and_leaves_nothing_that_is_seen(killed: Any, way: str) -> None:
    found = killed[way]
    assert (found["refused"], found["seen"], found["whole"]) == (True, [], True)


@pytest.mark.parametrize("way", ["source", "rows", "columns", "files"])
def test_a_task_that_spark_runs_twice_at_a_time_gives_each_row_once(twice: Any, way: str) -> None:
    found = twice[way]
    assert {"begun-0", "begun-1"} <= set(found["attempts"])
    assert found["whole"]
    assert found["left"] == []


@pytest.mark.parametrize("launcher", ["run_on_dataframe", "TorchDistributor"])
def test_no_rank_is_run_twice_while_another_task_is(twice: Any, launcher: str) -> None:
    found = twice["ranks"][launcher]
    assert found["beside"] == [10, ["begun-0", "begun-1"]]
    assert found["begun"] == ["rank-0", "rank-1"]
    assert found["problems"] == [""]
