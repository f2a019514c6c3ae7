"""Tests of two Keras processes on JAX under a `keras.distribution`: every row once, or an error with advice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from neighbours.two_processes import outcomes_of
from petastore import Unischema, UnischemaField, write_dataset

PROGRAM = Path(__file__).parent / "two_parts.py"
ROWS = 103
RIGHT_PART = r"cur_shard={number}, shard_count=2\).*auto_shard_dataset = False"


REFUSALS = {
    "even": r"got 'even'.*Pass make_reader last_batch='drop' .*'pad' .*'wrap' ",
    "parts auto": f"a second time.*{RIGHT_PART}",
    "parts tf auto": f"a second time.*{RIGHT_PART}",
    "whole": f"twice.*{RIGHT_PART}",
    "whole auto": f"shards only tf.data.Dataset objects.*{RIGHT_PART}",
    "whole tf": f"twice.*{RIGHT_PART}",
    "whole tf late": f"twice.*{RIGHT_PART}",
    "whole torch": f"twice.*{RIGHT_PART}",
}
TRAINED = ("pad", "pad torch")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return the results of all modes, from two processes that import Keras, JAX, torch and TensorFlow once."""
    where = str(tmp_path_factory.mktemp("data") / "ids")
    schema = Unischema("Ids", [UnischemaField("id", "int32")])
    write_dataset(where, schema, [{"id": i} for i in range(ROWS)], rows_per_row_group=13)
    folder = tmp_path_factory.mktemp("run")
    modes = [*TRAINED, *REFUSALS, "lost auto"]
    return outcomes_of(PROGRAM, where, modes, folder=folder, environment={"KERAS_BACKEND": "jax"})


@pytest.mark.parametrize("mode", TRAINED)
def test_keras_distribution_trains_on_each_row_once(outcomes: dict[str, list[Any]], mode: str) -> None:
    first, second = outcomes[mode]
    assert sorted(first["trained"] + second["trained"]) == list(range(ROWS))
    assert first["weights"] == second["weights"]


@pytest.mark.parametrize("mode", REFUSALS)
def test_keras_distribution_rejects_lost_or_repeated_rows(outcomes: dict[str, list[Any]], mode: str) -> None:
    for number, refusal in enumerate(outcomes[mode]):
        assert re.search(REFUSALS[mode].replace("{number}", str(number)), refusal)


def test_keras_drops_half_of_a_sharded_dataset(outcomes: dict[str, list[Any]]) -> None:
    """The control: the loss of rows that petastore rejects in the test above."""
    first, second = outcomes["lost auto"]
    assert len(set(first + second)) == 51
