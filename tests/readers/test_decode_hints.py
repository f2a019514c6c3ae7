"""Tests of `decode=` hints for images, end to end: readers, mixtures, transforms, torch, states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from numpy.typing import NDArray

import petastore
from petastore import TransformSpec, Unischema, UnischemaField
from petastore.adapters.torch import DataLoader, MapDataset, ReaderDataset
from petastore.codecs import CompressedImageCodec, ImageDecode
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.readers.mixed_sources import SourceGiven

PHOTO = UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("jpeg", 90))
MASK = UnischemaField("mask", "uint8", (24, 32), CompressedImageCodec("png"), nullable=True)
SCHEMA = Unischema("photos", [UnischemaField("id", "int32"), PHOTO, MASK])
ROWS = 30
SMALL = {"photo": ImageDecode(size=(16, 20))}


def photo(number: int) -> NDArray[np.uint8]:
    """Return an image of one color with its own size."""
    return np.full((32 + number, 70 - number, 3), (number * 8, 100, 255 - number * 8), np.uint8)


def photo_row(number: int) -> dict[str, Any]:
    mask = np.arange(24 * 32, dtype=np.uint8).reshape(24, 32) + np.uint8(number)
    return {"id": number, "photo": photo(number), "mask": None if number % 7 == 3 else mask}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("hints") / "photos")
    petastore.write_dataset(url, SCHEMA, map(photo_row, range(ROWS)), rows_per_row_group=7)
    return url


def assert_photo(image: Any, number: int) -> None:
    assert np.abs(np.asarray(image).astype(int) - (number * 8, 100, 255 - number * 8)).max() <= 4


def test_decode_resizes_images_to_one_array_per_batch(url: str) -> None:
    with petastore.make_reader(url, ["id", "photo"], decode=SMALL, shuffle_rows=True, seed=1) as reader:
        assert reader.schema["photo"].shape == (16, 20, 3)
        for batch in reader.iter_batches(8):
            assert batch["photo"].shape == (batch.num_rows, 16, 20, 3)
            assert batch["photo"].dtype == np.uint8
            for number, image in zip(batch["id"].tolist(), batch["photo"], strict=True):
                assert_photo(image, number)


def test_decode_works_in_row_and_batch_readers(url: str) -> None:
    with petastore.make_reader(url, decode=SMALL) as reader:
        for row in reader:
            assert row.photo.shape == (16, 20, 3)
            assert_photo(row.photo, int(row.id))
    with petastore.make_batch_reader(url, decode=SMALL) as reader:
        assert [batch.photo.shape[1:] for batch in reader] == [(16, 20, 3)] * 5


def test_decode_keeps_missing_images(url: str) -> None:
    hint = {"mask": ImageDecode(region=(2, 3, 8, 9))}
    with petastore.make_reader(url, ["id", "mask"], decode=hint, shuffle_row_groups=False) as reader:
        (batch,) = reader.iter_batches(ROWS)
    masks = batch["mask"]
    assert masks.shape == (ROWS, 8, 9)
    assert isinstance(masks, np.ma.MaskedArray)
    gone = np.ma.getmaskarray(masks).all(axis=(1, 2))
    assert gone.tolist() == [number % 7 == 3 for number in range(ROWS)]
    for number in np.flatnonzero(~gone).tolist():
        np.testing.assert_array_equal(masks[number], photo_row(number)["mask"][2:10, 3:12])


def test_decode_gray_keeps_free_shapes(url: str) -> None:
    with petastore.make_reader(url, ["photo"], decode={"photo": ImageDecode(mode="gray")}) as reader:
        assert reader.schema["photo"].shape == (None, None)
        shapes = {row.photo.shape for row in reader}
    assert shapes == {photo(number).shape[:2] for number in range(ROWS)}


def test_decode_applies_before_the_transform(url: str) -> None:
    def mean(row: dict[str, Any]) -> dict[str, Any]:
        assert row["photo"].shape == (16, 20, 3)
        return {"id": row["id"], "mean": row["photo"].mean(axis=(0, 1))}

    spec = TransformSpec(mean, edit_fields=[("mean", np.float64, (3,), False)], removed_fields=["photo"])
    with petastore.make_reader(url, ["id", "photo"], decode=SMALL, transform_spec=spec) as reader:
        for row in reader:
            assert_photo(row.mean, int(row.id))


def test_decode_applies_before_the_predicate(url: str) -> None:
    def is_small(row: dict[str, Any]) -> bool:
        return row["photo"].shape == (16, 20, 3)

    with petastore.make_reader(url, ["id", "photo"], decode=SMALL, predicate=is_small) as reader:
        assert len(reader) == ROWS


def test_decode_does_not_change_order_and_states(url: str) -> None:
    asked: dict[str, Any] = {"schema_fields": ["id", "photo"], "shuffle_rows": True, "seed": 5}
    with petastore.make_reader(url, **asked) as reader:
        whole = [int(row.id) for row in reader]
    with petastore.make_reader(url, **asked, decode=SMALL) as reader:
        first = [int(next(reader).id) for _ in range(10)]
        state = reader.state_dict()
    larger = {"photo": ImageDecode(size=(24, 24))}
    with petastore.make_reader(url, **asked, decode=larger) as reader:
        reader.load_state_dict(state)
        rest = list(reader)
    assert {row.photo.shape for row in rest} == {(24, 24, 3)}
    assert first + [int(row.id) for row in rest] == whole


def test_decode_allows_mixing_sources_of_other_sizes(url: str, tmp_path: Path) -> None:
    field = UnischemaField("photo", "uint8", (40, 40, 3), CompressedImageCodec("png"))
    others = Unischema("others", [UnischemaField("id", "int32"), field])
    rows = [{"id": n, "photo": np.full((40, 40, 3), (n * 8, 100, 255 - n * 8), np.uint8)} for n in range(ROWS)]
    petastore.write_dataset(tmp_path / "others", others, rows, rows_per_row_group=10)
    sources: list[SourceGiven] = [url, tmp_path / "others"]
    with pytest.raises(petastore.errors.SchemaError, match="sources must agree in field 'photo', got uint8"):
        petastore.make_mixed_reader(sources, [1, 1], ["id", "photo"])
    own: list[SourceGiven] = [
        url,
        {"dataset_url": tmp_path / "others", "decode": {"photo": ImageDecode((16, 20), (8, 8, 32, 20))}},
    ]
    for given in (sources, own):
        with petastore.make_mixed_reader(given, [1, 1], ["id", "photo"], decode=SMALL, shuffle_rows=True) as reader:
            assert reader.schema["photo"].shape == (16, 20, 3)
            for batch in reader.iter_batches(16):
                assert batch["photo"].shape[1:] == (16, 20, 3)
                for number, image in zip(batch["id"].tolist(), batch["photo"], strict=True):
                    assert_photo(image, number)


def test_decode_gives_one_tensor_in_torch(url: str) -> None:
    with petastore.make_reader(url, ["id", "photo"], decode=SMALL) as reader:
        shapes = [tuple(batch["photo"].shape) for batch in DataLoader(reader, batch_size=10)]
    assert shapes == [(10, 16, 20, 3)] * 3
    rows = MapDataset(url, ["id", "photo"], decode=SMALL)
    assert rows[4]["photo"].shape == (16, 20, 3)
    dataset = ReaderDataset(url, ["id", "photo"], batch_size=10, decode=SMALL)
    assert dataset.schema["photo"].shape == (16, 20, 3)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None)
    assert [tuple(batch["photo"].shape) for batch in loader] == shapes


def test_decoded_images_can_be_written_again(url: str, tmp_path: Path) -> None:
    with petastore.make_reader(url, ["id", "photo"], decode=SMALL, shuffle_row_groups=False) as reader:
        rows = [row._asdict() for row in reader]
        petastore.write_dataset(tmp_path / "small", reader.schema, rows)
    written = petastore.open_dataset(tmp_path / "small")
    assert written.schema["photo"] == UnischemaField("photo", "uint8", (16, 20, 3), PHOTO.codec)
    with petastore.make_reader(tmp_path / "small", shuffle_row_groups=False) as reader:
        for number, row in enumerate(reader):
            assert_photo(row.photo, number)


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        ({"image": ImageDecode()}, r"decode must name fields of.*\('id', 'photo', 'mask'\), got 'image'"),
        (
            {"id": ImageDecode(size=(8, 8))},
            "decode must name fields with CompressedImageCodec, got 'id', whose codec is None",
        ),
        (
            {"mask": ImageDecode(region=(0, 0, 25, 8))},
            r"decode= of 'mask': region must lie inside images of shape \(24, 32\), got \(0, 0, 25, 8\) as \(top,",
        ),
        ({"photo": (8, 8)}, r"decode must have petastore\.codecs\.ImageDecode\(size=…\) for 'photo', got \(8, 8\)"),
        ([("photo", ImageDecode())], "a dict from field name to ImageDecode"),
    ],
)
def test_decode_hint_invalid_arguments_raise_at_the_call(url: str, decode: Any, message: str) -> None:
    for call in (
        lambda: petastore.make_reader(url, decode=decode),
        lambda: petastore.make_batch_reader(url, decode=decode),
        lambda: petastore.make_mixed_reader([url], [1], decode=decode),
        lambda: MapDataset(url, decode=decode),
        lambda: ReaderDataset(url, decode=decode),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            call()


def test_decode_region_names_a_too_small_image(url: str) -> None:
    with petastore.make_reader(
        url, ["photo"], decode={"photo": ImageDecode(region=(0, 0, 32, 60))}, shuffle_row_groups=False
    ) as reader:
        with pytest.raises(
            DecodeError, match=r"the jpeg must contain the region \(0, 0, 32, 60\) .*, got 43×59 pixels"
        ) as caught:
            list(reader.iter_batches(ROWS))
        assert (caught.value.column, caught.value.row_group, caught.value.row) == ("photo", 1, 4)
