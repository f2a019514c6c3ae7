"""Tests of states that an older petastore wrote: they resume with exactly the batches that followed there.

`golden/states.json` was written by commit a7806d7, over the files of `golden/numbers`. It has the arguments, the state
after some batches, and the ids of all later batches. It is never rewritten, because users resume training runs of older
releases.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data

import petastore
from petastore.adapters.torch import BlockSampler, MapDataset, ReaderDataset

GOLDEN = Path(__file__).parent / "golden"
CASES = json.loads((GOLDEN / "states.json").read_text(encoding="utf-8"))
WORKERS = 2

Followed = tuple[list[Any], list[list[int]]]
"""States after some batches, one per worker, and the ids of the later batches."""

# More workers than CPUs are slow, but correct.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


PARAMETERS = {"tail": "last_batch", "lanes": "interleave", "block_rows": "shuffle_block_rows"}
"""Names of parameters in the cases, and their current names."""


def follow(case: dict[str, Any], states: list[Any] | None) -> Followed:
    """Run the training run of a case, from its start or from states, to its end.

    Args:
        case: An entry of the golden file.
        states: States to resume from; None starts from the beginning.

    Returns:
        The states after `case["after"]` batches, if it started from the beginning, and the ids of all later batches.
    """
    asked = dict(case["asked"]) if states is None else {**case["asked"], **case["then"]}
    asked = {PARAMETERS.get(name, name): value for name, value in asked.items()}
    if "reshuffle" in asked:
        asked["reshuffle_each_epoch"] = asked.pop("reshuffle") == "epoch"
    batch_size = case["batch_size" if states is None else "then_batch_size"]
    return KINDS[case["make"]](case, asked, batch_size, states)


def _of_reader(case: dict[str, Any], asked: dict[str, Any], batch_size: int, states: list[Any] | None) -> Followed:
    with _reader(case["make"], asked) as reader:
        if states is not None:
            reader.load_state_dict(states[0])
        batches = reader.iter_batches(batch_size)
        taken: list[Any] = []
        if states is None:
            for _ in itertools.islice(batches, case["after"]):
                pass
            taken.append(json.loads(json.dumps(reader.state_dict())))
        return taken, [_ids_of(batch) for batch in itertools.islice(batches, case["most"])]


def _reader(make: str, asked: dict[str, Any]) -> petastore.Reader:
    asked.setdefault("filter_cache", False)
    if "filters" in asked:
        asked["filters"] = [tuple(one) for one in asked["filters"]]
    if make == "mixed":
        sources = [f"{GOLDEN}/numbers/{name}.parquet" for name in asked.pop("sources")]
        return petastore.make_mixed_reader(sources, **asked)
    if "window" in asked:
        fields = {offset: ["id", "time"] for offset in range(asked.pop("window"))}
        asked["schema_fields"] = petastore.NGram(fields, delta_threshold=1, timestamp_field="time")
    made = petastore.make_batch_reader if make == "batch_reader" else petastore.make_reader
    return made(f"{GOLDEN}/numbers", **asked)


def _ids_of(batch: Any) -> list[int]:
    """Return the ids of a batch's rows, or of the first rows of its windows; repeats are negative."""
    ids = [int(number) for number in batch["id"].reshape(len(batch["id"]), -1)[:, 0]]
    if "valid" not in batch:
        return ids
    return [number if is_valid else -1 - number for number, is_valid in zip(ids, batch["valid"].tolist(), strict=True)]


def _rows(asked: dict[str, Any], batch_size: int) -> ReaderDataset:
    return ReaderDataset(f"{GOLDEN}/numbers", batch_size=batch_size, **asked)


def _of_workers(case: dict[str, Any], asked: dict[str, Any], batch_size: int, states: list[Any] | None) -> Followed:
    """Read in worker processes of torch's DataLoader, which return their state after each batch."""
    told: list[list[tuple[Any, list[int]]]] = [[] for _ in range(WORKERS)]
    telling = _Telling(_rows(asked, batch_size), states)
    for said in torch.utils.data.DataLoader(
        telling, batch_size=None, num_workers=WORKERS, multiprocessing_context="fork"
    ):
        worker, state, ids = json.loads(said)
        told[worker].append((state, ids))
    after = case["after"] if states is None else 0
    taken = [of_worker[after - 1][0] for of_worker in told] if states is None else []
    return taken, [[*map(int, ids)] for of_worker in told for _, ids in of_worker[after:]]


class _Telling(torch.utils.data.IterableDataset[str]):
    """Dataset that yields each batch as JSON, with the number and state of its worker."""

    def __init__(self, rows: ReaderDataset, states: list[Any] | None) -> None:
        self.rows, self.states = rows, states

    def __iter__(self) -> Iterator[str]:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        if self.states is not None:
            self.rows.load_state_dict(self.states[info.id])
        for batch in self.rows:
            yield json.dumps([info.id, self.rows.state_dict(), batch["id"].tolist()])


def _alone(case: dict[str, Any], asked: dict[str, Any], batch_size: int, states: list[Any] | None) -> Followed:
    """Read without worker processes; a state may be that of all workers together."""
    rows = _rows(asked, batch_size)
    if states is not None:
        rows.load_state_dict(states[0])
        return [], [batch["id"].tolist() for batch in rows]
    batches = iter(rows)
    for _ in itertools.islice(batches, case["after"]):
        pass
    state = rows.state_after(case["after"], WORKERS) if case["make"] == "torch_after" else rows.state_dict()
    return [json.loads(json.dumps(state))], [] if case["make"] == "torch_after" else [
        batch["id"].tolist() for batch in batches
    ]


def _sampled(case: dict[str, Any], asked: dict[str, Any], batch_size: int, states: list[Any] | None) -> Followed:
    sampler = BlockSampler(MapDataset(f"{GOLDEN}/numbers"), batch_size=batch_size, **asked)
    if states is not None:
        sampler.load_state_dict(states[0])
        return [], [list(map(int, numbers)) for numbers in sampler]
    numbers = iter(sampler)
    for _ in itertools.islice(numbers, case["after"]):
        pass
    state = json.loads(json.dumps(sampler.state_dict()))
    return [state], [list(map(int, batch)) for batch in numbers]


KINDS: dict[str, Callable[[dict[str, Any], dict[str, Any], int, list[Any] | None], Followed]] = {
    "reader": _of_reader,
    "batch_reader": _of_reader,
    "mixed": _of_reader,
    "torch": _of_workers,
    "torch_alone": _alone,
    "torch_after": _alone,
    "sampler": _sampled,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_state_saved_by_an_older_version_resumes_with_the_same_batches(case: dict[str, Any]) -> None:
    assert case["states"], "nobody wrote a state"
    assert sum(map(len, case["batches"])) >= 20
    assert follow(case, case["states"])[1] == case["batches"]


@pytest.mark.parametrize(
    "case", [case for case in CASES if "seed" in case["asked"]], ids=lambda case: str(case["name"])
)
def test_state_format_is_unchanged_between_versions(case: dict[str, Any]) -> None:
    """The key `dealt_to`, the number of ranks to which row groups are assigned, was added later."""
    today = follow(case, None)[0]
    for state in today:
        state.get("order", {}).pop("dealt_to", None)
    assert today == case["states"]
