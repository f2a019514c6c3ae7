"""Tests of random transforms: `TransformSpec.rng` gives each row the same random numbers in every worker."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import petastore
from petastore import NGram, TransformSpec, make_batch_reader, make_mixed_reader, make_reader
from petastore.adapters.torch import ReaderDataset
from petastore.adapters.torch.map_dataset import MapDataset
from petastore.errors import InvalidArgumentError
from petastore.readers.random_access import RandomAccess
from tests.readers import transforms_to_send as sent

ROWS = 90

Drawn = dict[int, list[int]]
"""Random values per id, one for each epoch."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("random") / "numbers")
    petastore.write_dataset(path, {"id": np.arange(ROWS)}, rows_per_row_group=11, rows_per_file=33)
    return path


ROW = TransformSpec(sent.draws_of_row, rng="rng", takes="row")
COLUMNS = TransformSpec(sent.draws_of_columns, rng="rng", takes="columns")
FRAME = TransformSpec(sent.draws_of_frame, rng="rng", takes="dataframe")


def drawn(batches: Iterator[Any]) -> Drawn:
    values: Drawn = {}
    for batch in batches:
        for number, value in zip(batch["id"].tolist(), batch["drawn"].tolist(), strict=True):
            values.setdefault(number, []).append(value)
    return values


def drawn_by(make: Callable[..., Any], url: str, batch_size: int, **asked: Any) -> Drawn:
    with make(url, **{"seed": 5, "num_epochs": 2, "shuffle_rows": True} | asked) as reader:
        return drawn(reader.iter_batches(batch_size))


@functools.cache
def expected(url: str) -> Mapping[int, list[int]]:
    return drawn_by(make_reader, url, 10, transform_spec=ROW, workers_count=1)


def test_transform_rng_differs_for_each_row_and_epoch(url: str) -> None:
    values = [value for of_epochs in expected(url).values() for value in of_epochs]
    assert len(values) == len(set(values)) == 2 * ROWS
    assert drawn_by(make_reader, url, 10, transform_spec=ROW, seed=6) != expected(url)


@pytest.mark.parametrize(
    ("make", "spec", "pool", "workers", "batch_size"),
    [
        (make_reader, ROW, "thread", 4, 7),
        pytest.param(make_reader, ROW, "process", 1, 64, marks=pytest.mark.slow),
        (make_reader, ROW, "process", 3, 10),
        (make_reader, COLUMNS, "thread", 2, 16),
        (make_reader, FRAME, "dummy", 1, 10),
        (make_batch_reader, FRAME, "thread", 3, 13),
        pytest.param(make_batch_reader, COLUMNS, "process", 2, 30, marks=pytest.mark.slow),
        (make_batch_reader, ROW, "thread", 2, 9),
    ],
)
def test_transform_rng_is_independent_of_pool_workers_and_batch_size(
    url: str, make: Callable[..., Any], spec: TransformSpec, pool: str, workers: int, batch_size: int
) -> None:
    asked = {"transform_spec": spec, "reader_pool_type": pool, "workers_count": workers}
    assert drawn_by(make, url, batch_size, **asked) == expected(url)


def test_transform_rng_is_independent_of_order_and_ranks(url: str) -> None:
    of_ranks = [
        drawn_by(make_reader, url, 4, transform_spec=ROW, cur_shard=rank, shard_count=3, reshuffle_each_epoch=False)
        for rank in range(3)
    ]
    assert {number: values for of_rank in of_ranks for number, values in of_rank.items()} == expected(url)
    in_file_order = {"shuffle_rows": False, "shuffle_row_groups": False}
    assert drawn_by(make_reader, url, 10, transform_spec=ROW, **in_file_order) == expected(url)


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_transform_rng_gives_the_same_values_after_a_resume_mid_epoch(url: str, pool: Any) -> None:
    asked: dict[str, Any] = {"seed": 5, "num_epochs": 2, "shuffle_rows": True, "transform_spec": ROW}
    with make_reader(url, **asked) as reader:
        batches = reader.iter_batches(10)
        before = [next(batches) for _ in range(13)]
        state = reader.state_dict()
    del asked["seed"]  # the state has the seed
    with make_reader(url, **asked, reader_pool_type=pool, workers_count=2) as reader:
        reader.load_state_dict(state)
        values = drawn(iter([*before, *reader.iter_batches(10)]))
    assert {number: sorted(of_epochs) for number, of_epochs in values.items()} == {
        number: sorted(of_epochs) for number, of_epochs in expected(url).items()
    }


def test_transform_rng_of_a_row_is_the_same_with_a_filter(url: str) -> None:
    values = drawn_by(make_reader, url, 10, transform_spec=ROW, filters=[("id", ">", 60)])
    assert values == {number: of_epochs for number, of_epochs in expected(url).items() if number > 60}


@pytest.mark.parametrize("pool", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_transform_rng_of_a_row_is_the_same_with_provenance(url: str, tmp_path: Path, pool: Any) -> None:
    asked: dict[str, Any] = {"reader_pool_type": pool, "workers_count": 2, "provenance": True}
    for spec in (ROW, COLUMNS, FRAME):
        assert drawn_by(make_reader, url, 10, transform_spec=spec, **asked) == expected(url)
    petastore.write_dataset(str(tmp_path / "few"), {"id": np.arange(1000, 1007)})
    urls = [url, str(tmp_path / "few")]
    mixtures = []
    for provenance in (False, True):
        options = {**asked, "transform_spec": [ROW, COLUMNS], "provenance": provenance, "seed": 2}
        with make_mixed_reader(urls, [1, 1], **options) as mixed:
            mixtures.append(drawn(mixed.iter_batches(10)))
    assert mixtures[0] == mixtures[1]
    assert mixtures[0].keys() & range(1000, 1007)


def test_transform_rng_of_a_row_is_the_same_in_each_window(url: str) -> None:
    ngram = NGram({0: ["id", "drawn"], 1: ["id", "drawn"]}, 1, "id")
    spec = TransformSpec(sent.draws_of_columns, [("drawn", np.int64, (), False)], takes="columns", rng="rng")
    with make_batch_reader(url, ngram, seed=5, transform_spec=spec) as reader:
        windows = [
            window for batch in reader.iter_batches(8) for window in zip(batch["id"], batch["drawn"], strict=True)
        ]
    assert len(windows) == ROWS - 1
    for ids, values in windows:
        assert values.tolist() == [expected(url)[number][0] for number in ids.tolist()]


@pytest.mark.parametrize("batching", ["mixed", pytest.param("per_source", marks=pytest.mark.slow)])
def test_transform_rng_differs_when_a_mixture_source_is_repeated(url: str, tmp_path: Path, batching: Any) -> None:
    petastore.write_dataset(str(tmp_path / "few"), {"id": np.arange(1000, 1007)})

    def values(batch_size: int, pool: Any = "thread", apart: bool = False) -> Drawn:
        transforms: Any = [ROW, TransformSpec(sent.draws_of_row, rng="rng")] if apart else ROW
        with make_mixed_reader(
            [url, str(tmp_path / "few")],
            [1, 1],
            seed=2,
            stop="all_exhausted",
            batching=batching,
            transform_spec=transforms,
            reader_pool_type=pool,
            workers_count=2,
        ) as reader:
            return drawn(reader.iter_batches(batch_size))

    first = values(8)
    assert all(len(first[number]) > 10 for number in range(1000, 1007))
    of_all = [value for of_one in first.values() for value in of_one]
    assert len(set(of_all)) == len(of_all)
    for other in (values(30, "process"), values(8, apart=True)):
        assert {number: sorted(of_one) for number, of_one in other.items()} == {
            number: sorted(of_one) for number, of_one in first.items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_transform_rng_is_the_same_in_torch_workers(url: str, workers: int) -> None:
    dataset = ReaderDataset(url, batch_size=10, seed=5, shuffle_rows=True, num_epochs=2, transform_spec=ROW)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers)
    assert {n: sorted(of_n) for n, of_n in drawn(iter(loader)).items()} == {
        n: sorted(of_n) for n, of_n in expected(url).items()
    }


def test_transform_rng_values_are_unchanged_between_versions(url: str) -> None:
    def bits(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return row | {"bits": np.uint64(rng.bit_generator.random_raw())}

    spec = TransformSpec(bits, rng="rng")
    with make_reader(url, seed=7, num_epochs=2, shuffle_row_groups=False, transform_spec=spec) as reader:
        values = [int(row.bits) for row in reader]
    # Philox with the key (mix(32, seed, epoch, row group), row): guaranteed by petastore and by NumPy across releases.
    expected_bits = [0x272E60CB13B928F8, 0xFF8B9201938A4E15, 0x73AA0DF95DD5FE07, 0xB5D1364B2723CE1E]
    assert [values[place] for place in (0, 1, ROWS - 1, ROWS)] == expected_bits


@pytest.mark.parametrize("make", [RandomAccess, MapDataset])
def test_transform_rng_raises_for_random_access_and_map_dataset(url: str, make: Any) -> None:
    dataset = petastore.open_dataset(url) if make is RandomAccess else url
    parameter = "transform" if make is RandomAccess else "transform_spec"
    with pytest.raises(InvalidArgumentError, match="neither seed nor epoch"):
        make(dataset, **{parameter: ROW})


@pytest.mark.parametrize("rng", ["rgn", "not a name", 3])
def test_transform_rng_must_name_an_argument_of_the_function(rng: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^rng must be the name of a keyword argument"):
        TransformSpec(sent.draws_of_row, rng=rng)


def test_transform_rng_without_a_function_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^rng must be None for a TransformSpec without a function"):
        TransformSpec(rng="rng")
