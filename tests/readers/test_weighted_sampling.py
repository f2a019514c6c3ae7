"""Tests of `WeightedSamplingReader`: Petastorm's semantics, in exact proportions instead of random draws."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import TransformSpec, Unischema, UnischemaField, WeightedSamplingReader
from petastore.adapters.torch import DataLoader
from petastore.errors import InvalidArgumentError, ReaderClosedError, SchemaError

SCHEMA = Unischema("numbers", [UnischemaField("id", np.int64), UnischemaField("xy", np.float32, (2,))])


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Write three datasets of 90 rows, whose ids begin at 0, 1000 and 2000."""
    folder = tmp_path_factory.mktemp("weighted")
    for number in range(3):
        ids = range(1000 * number, 1000 * number + 90)
        rows = ({"id": row, "xy": np.full(2, row, np.float32)} for row in ids)
        petastore.write_dataset(folder / f"d{number}", SCHEMA, rows, rows_per_row_group=13)
    return [str(folder / f"d{number}") for number in range(3)]


def rows_of(urls: list[str], **kwargs: Any) -> list[Any]:
    return [petastore.make_reader(url, **kwargs) for url in urls]


def batches_of(urls: list[str], **kwargs: Any) -> list[Any]:
    return [petastore.make_batch_reader(url, **kwargs) for url in urls]


def test_weighted_sampling_mixes_until_the_first_reader_ends(urls: list[str]) -> None:
    with WeightedSamplingReader(rows_of(urls, seed=1), [0.6, 0.3, 0.1]) as reader:
        ids = [int(row.id) for row in reader]
        assert len(ids) == len(reader)
    shares = np.bincount(np.array(ids) // 1000)
    assert shares[0] == 90
    assert abs(shares[1] - 45) <= 1
    assert abs(shares[2] - 15) <= 1
    assert sorted(row for row in ids if row < 1000) == list(range(90))


def test_weighted_sampling_normalizes_probabilities(urls: list[str]) -> None:
    orders = []
    for probabilities in ([6, 3, 1], [0.6, 0.3, 0.1]):
        with WeightedSamplingReader(rows_of(urls, seed=1), probabilities) as reader:
            orders.append([int(row.id) for row in reader])
    assert orders[0] == orders[1]


def test_weighted_sampling_ignores_readers_of_probability_zero(urls: list[str]) -> None:
    readers = [*rows_of(urls[:1]), *rows_of(urls[1:2], num_epochs=None), *rows_of(urls[2:])]
    with WeightedSamplingReader(readers, [0, 0.0, 1]) as reader:
        assert sorted(int(row.id) for row in reader) == list(range(2000, 2090))
    assert all(reader.stopped for reader in readers)
    fresh = rows_of(urls)
    with pytest.raises(
        InvalidArgumentError,
        match=r"source_column must be None if a reader has probability 0, got 'of'\. Leave out readers with",
    ):
        WeightedSamplingReader(fresh, [1, 0, 1], source_column="of")
    with pytest.raises(
        InvalidArgumentError,
        match=r"weights must be finite numbers above 0, got 0 for source 0\. Leave out sources that are not to",
    ):
        WeightedSamplingReader(fresh, [0, 0, 0])
    for one in fresh:
        one.stop()
        one.join()


def test_weighted_sampling_ends_after_all_epochs_of_one_reader(urls: list[str]) -> None:
    readers = [*rows_of(urls[:1], num_epochs=3), *rows_of(urls[1:2], num_epochs=None)]
    with WeightedSamplingReader(readers, [1, 1]) as reader:
        ids = np.array([row.id for row in reader])
    assert np.bincount(ids[ids < 1000]).tolist() == [3] * 90
    assert abs(int((ids >= 1000).sum()) - 270) <= 1


def test_weighted_sampling_is_endless_if_all_readers_are(urls: list[str]) -> None:
    with WeightedSamplingReader(rows_of(urls, num_epochs=None, schema_fields=["id"]), [1, 1, 1]) as reader:
        assert reader.num_epochs is None
        ids = [int(row.id) for row in itertools.islice(reader, 600)]
    assert np.bincount(np.array(ids) // 1000).tolist() == [200] * 3
    with pytest.raises(TypeError):
        len(reader)


def test_weighted_sampling_batches_have_one_source(urls: list[str]) -> None:
    with WeightedSamplingReader(batches_of(urls), [2, 1, 1]) as reader:
        assert reader.batched_output
        batches = [np.unique(batch.id // 1000).tolist() for batch in reader]
    assert all(len(sources) == 1 for sources in batches)
    assert {sources[0] for sources in batches} == {0, 1, 2}


def test_weighted_sampling_with_batching_mixed_mixes_inside_batches(urls: list[str]) -> None:
    with WeightedSamplingReader(batches_of(urls), [1, 1, 1], batching="mixed", source_column="of") as reader:
        for batch in reader.iter_batches(9):
            if batch.num_rows == 9:
                assert np.bincount(batch["of"]).tolist() == [3, 3, 3]


def test_weighted_sampling_keeps_each_readers_transform(urls: list[str]) -> None:
    def by(factor: int) -> TransformSpec:
        def multiplied(row: dict[str, Any]) -> dict[str, Any]:
            return {"id": row["id"], "z": np.float64(row["xy"].sum() * factor)}

        return TransformSpec(multiplied, [("z", np.float64, (), False)], removed_fields=["xy"])

    readers = [
        petastore.make_reader(url, transform_spec=by(n), last_batch="pad") for n, url in enumerate(urls, start=1)
    ]
    with WeightedSamplingReader(readers, [1, 2, 1], source_column="of") as reader:
        assert list(reader.schema.fields) == ["id", "z", "of"]
        for batch in reader.iter_batches(7):
            assert (batch["z"] == 2 * batch["id"] * (batch["of"] + 1)).all()
            assert batch["valid"].dtype == np.bool_


def test_weighted_sampling_applies_the_dataframe_transform_of_each_reader(urls: list[str]) -> None:
    def adding(number: int) -> TransformSpec:
        return TransformSpec(lambda frame: frame.assign(id=frame["id"] + number), removed_fields=["xy"])

    readers = [petastore.make_batch_reader(url, transform_spec=adding(100 * n)) for n, url in enumerate(urls)]
    with WeightedSamplingReader(readers, [1, 1, 1], batching="mixed") as reader:
        ids = np.concatenate([batch["id"] for batch in reader.iter_batches(8)])
    assert set((ids // 100).tolist()) == {0, 11, 22}


def test_weighted_sampling_resumes_with_random_seeds(urls: list[str]) -> None:
    with WeightedSamplingReader(rows_of(urls, shuffle_rows=True), [3, 2, 1]) as reader:
        batches = reader.iter_batches(8)
        taken = [next(batches)["id"].tolist() for _ in range(5)]
        state = json.dumps(reader.state_dict())
        rest = [batch["id"].tolist() for batch in batches]
    with WeightedSamplingReader(rows_of(urls, shuffle_rows=True), [3, 2, 1]) as reader:
        reader.load_state_dict(json.loads(state))
        assert [batch["id"].tolist() for batch in reader.iter_batches(8)] == rest
    assert len({*itertools.chain(*taken, *rest)}) == sum(map(len, taken + rest))


def test_weighted_sampling_reset_restarts_in_another_order(urls: list[str]) -> None:
    with WeightedSamplingReader(rows_of(urls, shuffle_rows=True), [1, 1, 1]) as reader:
        first = [int(row.id) for row in itertools.islice(reader, 50)]
        reader.reset()
        second = [int(row.id) for row in reader]
        assert len(second) == reader.num_rows
    assert first != second[:50]


@pytest.mark.parametrize("make", [rows_of, batches_of])
def test_weighted_sampling_works_in_torch_dataloader(urls: list[str], make: Any) -> None:
    with WeightedSamplingReader(make(urls, seed=2), [1, 1, 2]) as reader:
        loader = DataLoader(reader, batch_size=12)
        first, second = ([batch["id"].tolist() for batch in loader] for _ in range(2))
        assert len(first) == len(second) == len(loader)
    assert first != second


@pytest.mark.tf
@pytest.mark.slow
def test_weighted_sampling_works_in_tf_dataset(urls: list[str]) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    with WeightedSamplingReader(rows_of(urls, seed=2), [1, 1, 2], source_column="of") as reader:
        batches = list(make_tf_dataset(reader, batch_size=12))
        assert len(batches) == reader.steps_per_epoch(12)
        assert all((batch["id"].numpy() // 1000 == batch["of"].numpy()).all() for batch in batches)
        reader.reset()
        rows = list(make_tf_dataset(reader))
        assert len(rows) == reader.num_rows


def test_weighted_sampling_ranks_have_equal_steps(urls: list[str]) -> None:
    seen: list[int] = []
    steps = set()
    for rank in range(4):
        with WeightedSamplingReader(rows_of(urls, cur_shard=rank, shard_count=4), [1, 2, 1]) as reader:
            batches = [batch["id"].tolist() for batch in reader.iter_batches(5)]
            steps.add(len(batches))
            seen += itertools.chain(*batches)
    assert len(steps) == 1
    assert len(seen) == len(set(seen)) == reader.plan.num_rows


def test_weighted_sampling_mixes_a_sharded_and_an_unsharded_reader(urls: list[str]) -> None:
    """Three ranks shard one source, and each of them reads the whole other source."""
    of_first: list[set[int]] = []
    of_second, steps = [], set()
    for rank in range(3):
        readers = [*rows_of(urls[:1], cur_shard=rank, shard_count=3, num_epochs=None), *rows_of(urls[1:2])]
        with WeightedSamplingReader(readers, [1, 2]) as reader:
            batches = [batch["id"].tolist() for batch in reader.iter_batches(5)]
        steps.add(len(batches))
        seen = list(itertools.chain(*batches))
        of_first.append({number for number in seen if number < 1000})
        of_second.append(sorted(number for number in seen if number >= 1000))
    assert len(steps) == 1
    assert all(not ours & theirs for ours, theirs in itertools.combinations(of_first, 2))
    assert len({len(ours) for ours in of_first}) == 1
    with petastore.make_reader(urls[1]) as whole:
        assert of_second == [sorted(int(row.id) for row in whole)] * 3


def test_weighted_sampling_stop_stops_its_readers(urls: list[str]) -> None:
    readers = rows_of(urls)
    with WeightedSamplingReader(readers, [1, 1, 1]) as reader:
        next(reader)
    assert all(one.stopped for one in readers)
    with pytest.raises(ReaderClosedError):
        next(reader)


def test_weighted_sampling_raises_for_incompatible_readers(urls: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="readers must have at least two readers, got 1"):
        WeightedSamplingReader(rows_of(urls[:1]), [1])
    with pytest.raises(InvalidArgumentError, match=r"probabilities must be one number per reader \(2\), got 3"):
        WeightedSamplingReader(rows_of(urls[:2]), [1, 1, 1])
    with pytest.raises(
        InvalidArgumentError,
        match=r"weights must be finite numbers above 0, got -1 for source 1\. Leave out sources that are not to",
    ):
        WeightedSamplingReader(rows_of(urls[:2]), [1, -1])
    with pytest.raises(
        InvalidArgumentError,
        match="readers must all be made by make_reader, or all by make_batch_reader, got both kinds",
    ):
        WeightedSamplingReader([*rows_of(urls[:1]), *batches_of(urls[:1])], [1, 1])
    with pytest.raises(
        SchemaError,
        match=r"sources must have the same fields, got.*with 'xy' and.*without it\. Name the common fields in",
    ):
        WeightedSamplingReader([*rows_of(urls[:1]), *rows_of(urls[1:2], schema_fields=["id"])], [1, 1])
    with pytest.raises(InvalidArgumentError, match="last_batch"):
        WeightedSamplingReader([*rows_of(urls[:1]), *rows_of(urls[1:2], last_batch="drop")], [1, 1])
    with pytest.raises(
        InvalidArgumentError, match="readers must come from make_reader or make_batch_reader, got 'abc' as reader 1"
    ):
        WeightedSamplingReader([*rows_of(urls[:1]), "abc"], [1, 1])  # type: ignore[list-item]


def test_weighted_sampling_raises_for_an_iterated_reader(urls: list[str]) -> None:
    readers = rows_of(urls[:2])
    next(readers[1])
    with pytest.raises(
        InvalidArgumentError,
        match=r"readers must not have been iterated or closed before, got reader 1, which was\. Make a new",
    ):
        WeightedSamplingReader(readers, [1, 1])
    for reader in readers:
        reader.stop()
    with pytest.raises(
        InvalidArgumentError,
        match=r"readers must not have been iterated or closed before, got reader 0, which was\. Make a new",
    ):
        WeightedSamplingReader(readers, [1, 1])


def test_weighted_sampling_raises_for_a_mixed_reader(urls: list[str]) -> None:
    with (
        petastore.make_mixed_reader(urls[:2], [1, 1]) as mixed,
        pytest.raises(
            InvalidArgumentError,
            match=r"readers must come from make_reader or make_batch_reader, got Reader\(rows of.*as reader 0",
        ),
    ):
        WeightedSamplingReader([mixed, *rows_of(urls[:1])], [1, 1])


def test_weighted_sampling_repr_describes_the_sources(urls: list[str]) -> None:
    with WeightedSamplingReader(rows_of(urls), [1, 1, 1]) as reader:
        assert all(url in repr(reader) for url in urls)
