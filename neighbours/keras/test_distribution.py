"""Two processes of Keras on JAX under a `keras.distribution`: every row once, or a refusal that says what to write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from neighbours.two_processes import free_port, two_processes
from petastore import Unischema, UnischemaField, write_dataset

PROGRAM = Path(__file__).parent / "two_parts.py"
ROWS = 103
RIGHT_PART = r"cur_shard={number}, shard_count=2\).*auto_shard_dataset = False"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("data") / "ids")
    schema = Unischema("Ids", [UnischemaField("id", "int32")])
    write_dataset(where, schema, [{"id": i} for i in range(ROWS)], rows_per_row_group=13)
    return where


def told(url: str, mode: str, tmp_path: Path) -> list[Any]:
    """What the two processes say."""
    address = f"127.0.0.1:{free_port()}"
    printed = two_processes(
        PROGRAM,
        lambda number: [url, address, str(number), mode],
        folder=tmp_path,
        environment={"KERAS_BACKEND": "jax"},
    )
    return [json.loads(output.splitlines()[-1]) for output in printed]


@pytest.mark.parametrize("mode", ["pad", "pad torch"])
def test_every_row_is_trained_on_once(url: str, mode: str, tmp_path: Path) -> None:
    first, second = told(url, mode, tmp_path)
    assert sorted(first["trained"] + second["trained"]) == list(range(ROWS))
    assert first["weights"] == second["weights"]


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("even", r"last_batch='drop'.*last_batch='pad'.*last_batch='wrap'"),
        ("parts auto", f"shard again.*{RIGHT_PART}"),
        ("parts tf auto", f"shard again.*{RIGHT_PART}"),
        ("whole", f"twice.*{RIGHT_PART}"),
        ("whole auto", f"a tf.data.Dataset, and nothing else.*{RIGHT_PART}"),
        ("whole tf", f"twice.*{RIGHT_PART}"),
        ("whole tf late", f"twice.*{RIGHT_PART}"),
        ("whole torch", f"twice.*{RIGHT_PART}"),
    ],
)
def test_what_would_lose_or_double_rows_is_refused(url: str, mode: str, says: str, tmp_path: Path) -> None:
    for number, refusal in enumerate(told(url, mode, tmp_path)):
        assert re.search(says.replace("{number}", str(number)), refusal)


def test_keras_drops_half_of_what_is_sharded_already(url: str, tmp_path: Path) -> None:
    """The control: what is refused above."""
    first, second = told(url, "lost auto", tmp_path)
    assert len(set(first + second)) == 51
