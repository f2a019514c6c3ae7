"""Tests of finding loss spikes by a robust rule; planted rows, files and labels rank first."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import petastore
from petastore import make_reader
from petastore.errors import InvalidArgumentError
from petastore.plan import Shard
from petastore.tracing import Losses, find_spikes, rank_spikes, read_losses

ROWS = 1200
LOG = Losses(np.ones(9), steps=np.arange(9))
BAD_ROWS = {17, 333, 818}
"""Rows with a wrong label."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> petastore.Dataset:
    """Return twelve files of 100 rows; three rows have the label `swan`, an error of the labeling tool."""
    url = tmp_path_factory.mktemp("spikes") / "birds"
    label = np.array(["swan" if row in BAD_ROWS else ("wren", "robin", "magpie")[row % 3] for row in range(ROWS)])
    petastore.write_dataset(url, {"id": np.arange(ROWS), "label": label}, rows_per_row_group=50, rows_per_file=100)
    return petastore.open_dataset(url)


def trained(dataset: petastore.Dataset, bad: set[int], *, ranks: int = 1, batch_size: int = 20, epochs: int = 3) -> Any:
    """Return the plan of a simulated training run, and its loss of each step and rank, shape (steps, ranks)."""
    noise = np.random.default_rng(0)
    losses = []
    for rank in range(ranks):
        with make_reader(
            dataset.url, seed=5, shuffle_rows=True, num_epochs=epochs, cur_shard=rank, shard_count=ranks
        ) as reader:
            plan = reader.plan
            hits = [len(bad & set(batch["id"].tolist())) for batch in reader.iter_batches(batch_size)]
        steps = np.arange(len(hits))
        losses.append(np.exp(-steps / 100) + 0.3 + noise.normal(0, 0.02, len(hits)) + 1.5 * np.array(hits))
    return plan, np.stack(losses, axis=1)


def test_rank_spikes_ranks_the_label_and_rows_of_planted_bad_rows_first(dataset: petastore.Dataset) -> None:
    plan, losses = trained(dataset, BAD_ROWS)
    log = Losses(losses[:, 0], steps=np.arange(len(losses)))
    ranking = rank_spikes(plan, log, batch_size=20, dataset=dataset, label="label")
    assert ranking.spikes.steps is not None
    assert ranking.spikes.steps.tolist() == np.flatnonzero(losses[:, 0] > 1.6).tolist()
    assert ranking.labels is not None
    assert ranking.labels.items[0] == "swan"
    assert ranking.labels.in_spikes[0] == ranking.labels.total[0] == 3 * len(BAD_ROWS)
    # Each bad row is in a spike in each epoch, and no other row is.
    numbers = plan.inventory.find_rows(ranking.exclude_rows(3), name="rows")
    assert set((plan.inventory.first_rows[numbers[1]] + numbers[2]).tolist()) == BAD_ROWS
    assert (ranking.rows.in_spikes[:3].tolist(), ranking.rows.total[:3].tolist()) == ([3] * 3, [3] * 3)
    assert ranking.rows.scores[3] < ranking.rows.scores[2]
    assert repr(ranking).startswith("SpikeRanking(")


def test_rows_ranked_by_loss_spikes_can_be_excluded_from_a_reader(dataset: petastore.Dataset) -> None:
    plan, losses = trained(dataset, BAD_ROWS)
    ranking = rank_spikes(plan, Losses(losses[:, 0], steps=np.arange(len(losses))), batch_size=20)
    exclude = json.loads(json.dumps(ranking.exclude_rows(3)))
    with make_reader(dataset.url, exclude_rows=exclude) as reader:
        left = {row.id for row in reader}
    assert set(range(ROWS)) - left == BAD_ROWS


def test_rank_spikes_finds_a_bad_file_from_the_losses_of_four_ranks(dataset: petastore.Dataset) -> None:
    """The rank whose batch has rows of the bad file is the only one of four that spikes."""
    plan, losses = trained(dataset, set(range(400, 406)), ranks=4, batch_size=5)
    steps, ranks = (numbers.ravel() for numbers in np.indices(losses.shape))
    ranking = rank_spikes(plan, Losses(losses.ravel(), steps=steps, ranks=ranks), batch_size=5)
    assert ranking.spikes.ranks is not None
    assert ranking.files.items[0] == dataset.inventory.files[4].path
    assert ranking.files.scores[0] > 1.5 * ranking.files.scores[1]
    assert set(ranking.exclude_rows(6)) == {(dataset.inventory.files[4].path, 0, row) for row in range(6)}


def test_rank_spikes_accepts_losses_of_single_rows(dataset: petastore.Dataset, tmp_path: Path) -> None:
    noise = np.random.default_rng(1)
    with (
        (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file,
        make_reader(dataset.url, provenance=True, num_epochs=2) as reader,
    ):
        writer = csv.writer(file)
        writer.writerow(["source_file", "source_row_group", "source_row", "loss"])
        for row in reader:
            loss = noise.normal(1, 0.1) + (3 if row.id in BAD_ROWS else 0)
            writer.writerow([row.source_file, row.source_row_group, row.source_row, loss])
        plan = reader.plan
    ranking = rank_spikes(plan, read_losses(tmp_path / "rows.csv"), batch_size=1, dataset=dataset, label="label")
    assert ranking.labels is not None
    assert ranking.labels.items[0] == "swan"
    places = dataset.plan(shuffle_row_groups=False).rows_of_step(0, batch_size=ROWS).places()
    assert set(ranking.exclude_rows(3)) == {places[row] for row in BAD_ROWS}
    assert ranking.as_dict(3)["spikes"][0]["item"][0].endswith(".parquet")


def test_rank_spikes_of_a_log_without_spikes_is_empty(dataset: petastore.Dataset) -> None:
    plan = dataset.plan(seed=0)
    for steps in (np.arange(50), np.arange(0)):
        ranking = rank_spikes(
            plan, Losses(np.ones(len(steps)), steps=steps), batch_size=20, dataset=dataset, label="id"
        )
        facts = ranking.as_dict()
        assert (facts["spikes"], facts["rows"], facts["files"], facts["labels"]) == ([], [], [], [])


def test_rank_spikes_finds_bad_rows_from_a_part_of_the_log(dataset: petastore.Dataset) -> None:
    plan, losses = trained(dataset, BAD_ROWS)
    part = np.arange(30, len(losses) - 30)
    ranking = rank_spikes(plan, Losses(losses[part, 0], steps=part), batch_size=20, dataset=dataset, label="label")
    assert ranking.labels is not None
    assert ranking.labels.items[0] == "swan"
    assert ranking.rows.total.max() <= 3


def test_loss_spikes_are_found_above_a_moving_median() -> None:
    """A falling loss has no spike, even if it falls steeply at first; dips are not spikes."""
    losses = 5 * np.exp(-np.arange(400) / 30) + np.tile([0, 0.03, -0.03, 0.05], 100)
    assert not find_spikes(losses).any()
    losses[[1, 100, 101, 300]] += 20
    losses[200] -= 20
    losses[250] = np.nan
    assert np.flatnonzero(find_spikes(losses)).tolist() == [1, 100, 101, 250, 300]


def reference_scores(losses: NDArray[np.float64], window: int) -> list[float]:
    """Reference implementation: compute the score of each loss by the definition."""
    medians = []
    for at in range(len(losses)):
        near = min(window // 2, at, len(losses) - 1 - at)
        medians.append(np.median(losses[at - near : at + near + 1]))
    apart = losses - medians
    scores = []
    for at in range(len(losses)):
        first = min(max(at - window // 2, 0), len(losses) - window)
        scores.append(0.6745 * apart[at] / np.median(np.abs(apart[first : first + window])))
    return [score if score > 3.5 else 0.0 for score in scores]


def test_find_spikes_equals_a_reference_implementation() -> None:
    losses = np.random.default_rng(3).standard_cauchy(300)
    assert np.allclose(find_spikes(losses, window=21), reference_scores(losses, 21))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda plan: rank_spikes(plan, LOG, batch_size=20, label="label"),
            "dataset must be given with label='label', got None. Pass the dataset",
        ),
        (lambda plan: rank_spikes(plan, LOG, batch_size=20, window=2), "window must be an int of at least 3, got 2"),
        (lambda plan: rank_spikes(plan, LOG, batch_size=20, threshold=0), "threshold must be above 0, got 0"),
        (lambda _: find_spikes([[1.0]]), r"losses must have one dimension, got shape \(1, 1\)"),
    ],
)
def test_rank_spikes_invalid_arguments_raise(dataset: petastore.Dataset, call: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        call(dataset.plan(seed=0, shard=Shard(0, 2)))


def test_rank_spikes_label_must_be_a_column_of_scalars(dataset: petastore.Dataset, tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "arrays", {"x": np.zeros((9, 2))})
    arrays = petastore.open_dataset(tmp_path / "arrays")
    with pytest.raises(InvalidArgumentError, match=r"label must name a column of scalars, got 'x' of shape \(2,\)"):
        rank_spikes(arrays.plan(seed=0), LOG, batch_size=1, dataset=arrays, label="x")
    with pytest.raises(InvalidArgumentError, match=r"dataset must be a list with one dataset per source \(1\), got 2"):
        rank_spikes(arrays.plan(seed=0), LOG, batch_size=1, dataset=[arrays, arrays], label="x")


def test_rank_spikes_ranks_labels_of_a_mixture(dataset: petastore.Dataset) -> None:
    with petastore.make_mixed_reader([dataset.url] * 2, [1, 1], seed=3, shuffle_rows=True) as reader:
        hits = [len(BAD_ROWS & set(batch["id"].tolist())) for batch in reader.iter_batches(20)]
        plan = reader.plan
    log = Losses(
        1 + 3 * np.array(hits) + np.random.default_rng(0).normal(0, 0.1, len(hits)), steps=np.arange(len(hits))
    )
    ranking = rank_spikes(plan, log, batch_size=20, dataset=[dataset, dataset], label="label")
    assert ranking.labels is not None
    assert ranking.labels.items[0] == "swan"


def test_rank_spikes_of_a_log_without_spikes_computes_no_epoch_orders(dataset: petastore.Dataset) -> None:
    plan = dataset.plan(seed=1)
    last = 10**6 * plan.steps_per_epoch(20)
    ranking = rank_spikes(plan, Losses(np.ones(2), steps=np.array([0, last])), batch_size=20)
    assert (len(ranking.rows), len(ranking.files)) == (0, 0)


def test_rank_spikes_names_rows_of_a_mixture_by_the_url_of_their_dataset(
    dataset: petastore.Dataset, tmp_path: Path
) -> None:
    petastore.write_dataset(tmp_path, {"id": np.arange(5000, 5010), "label": ["dog"] * 10})
    urls = [dataset.url, str(tmp_path)]
    options: dict[str, Any] = {"schema_fields": ["id"], "stop": "all_exhausted"}
    with petastore.make_mixed_reader(urls, [1, 1], seed=3, provenance=True, **options) as reader:
        batch, plan = next(reader.iter_batches(100)), reader.plan
    columns = (batch[name].tolist() for name in ("source_file", "source_row_group", "source_row"))
    places = tuple((file, group, row) for file, group, row in zip(*columns, strict=True))
    losses = np.where(batch["id"] == 5003, 9.0, 1.0) + np.random.default_rng(0).normal(0, 0.1, len(places))
    ranking = rank_spikes(plan, Losses(losses, rows=places), batch_size=100)
    excluded = ranking.exclude_rows()
    assert set(excluded) == {places[row] for row in np.flatnonzero(batch["id"] == 5003)}
    with petastore.make_mixed_reader(urls, [1, 1], exclude_rows=excluded, **options) as reader:
        assert 5003 not in {int(row.id) for row in reader}
