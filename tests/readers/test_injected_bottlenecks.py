"""Tests of bottleneck diagnosis: an injected sleep in a stage is found, with its share of the wait.

Stages sleep much longer than reading takes, so CPU load hardly changes the shares. If it does, they sleep even longer.
The expected share of the wait comes from the test's own clock: all time outside the training step.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import TransformSpec, Unischema, UnischemaField
from petastore.adapters.torch import DataLoader
from petastore.adapters.torch.device import Carrier
from petastore.codecs import DataframeColumnCodec
from petastore.monitoring.activity import Stage
from petastore.monitoring.diagnosis import Diagnosis, compare_ranks
from petastore.testing.faults import Faults, FaultyFileSystem

ROWS = 640
NOISE = 0.10
"""Largest allowed difference of the diagnosed and the injected share."""

LONGER = (1, 3, 9)
"""Factors of the sleeps; the next one is tried if load on the machine changes the shares."""


class SleepyCodec(DataframeColumnCodec):
    """Codec whose decoding sleeps for a few milliseconds per number."""

    sleep_s = 0.0

    def spark_dtype(self) -> str:
        return "binary"

    def encode(self, field: UnischemaField, value: Any) -> bytes:  # noqa: ARG002
        return int(value).to_bytes(8, "little")

    def decode(self, field: UnischemaField, cell: Any) -> Any:  # noqa: ARG002
        time.sleep(SleepyCodec.sleep_s)
        return np.int64(int.from_bytes(bytes(cell), "little"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write rows of 16 KiB, so that spans have few rows."""
    url = str(tmp_path_factory.mktemp("slow") / "x")
    numbers = UnischemaField("id", np.int64, (), SleepyCodec())
    schema = Unischema("Rows", [UnischemaField("x", np.float32, (64, 64)), numbers])
    x = np.zeros((64, 64), np.float32)
    petastore.write_dataset(
        url, schema, [{"x": x, "id": row} for row in range(ROWS)], rows_per_row_group=20, rows_per_file=80
    )
    return url


def slept(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.004)
    return row


@dataclasses.dataclass(frozen=True)
class Setting:
    """A reader with a slow stage, and a trainer with steps of some seconds."""

    stage: Stage | None
    options: dict[str, Any]
    step_s: float = 0.0
    store_s: float = 0.0
    cell_s: float = 0.0
    remedy: str = ""

    batch_size: int = 20

    def times(self, factor: int) -> Setting:
        """Return the setting with longer sleeps."""
        return dataclasses.replace(
            self, step_s=factor * self.step_s, store_s=factor * self.store_s, cell_s=factor * self.cell_s
        )

    def open(self, url: str) -> petastore.Reader:
        """Open the reader; its row groups are loaded a few at a time, all along the epoch."""
        files = {"filesystem": FaultyFileSystem(Faults(slow=1.0, slow_s=self.store_s))} if self.store_s else {}
        fields = ["x", "id"] if self.cell_s else ["x"]
        options = {"workers_count": 2, "seed": 7, "shuffle_rows": True, "shuffle_buffer_bytes": 2_000_000}
        return petastore.make_reader(url, fields, **{**options, **self.options, **files})


def trained(loader: Any, step: Callable[[], object]) -> float:
    """Return the share of the time since the first batch in which the trainer waited."""
    began = busy = 0.0
    for batch in loader:
        now = time.perf_counter()
        began = began or now
        step()
        busy += time.perf_counter() - now
        del batch
    return 1 - busy / (time.perf_counter() - began)


SETTINGS = {
    "slow store": Setting("storage", {}, store_s=0.1),
    "slow store, one worker": Setting("storage", {"workers_count": 1}, store_s=0.06),
    "slow store, four workers": Setting("storage", {"workers_count": 4}, store_s=0.25),
    "slow store, file order": Setting("storage", {"shuffle_rows": False}, store_s=0.1),
    "slow store, calling thread": Setting("storage", {"reader_pool_type": "dummy"}, store_s=0.15),
    "slow store and trainer": Setting("storage", {}, store_s=0.06, step_s=0.04),
    "slow decoding": Setting("decoding", {}, cell_s=0.006),
    "slow decoding, one worker": Setting("decoding", {"workers_count": 1}, cell_s=0.004),
    "slow decoding, calling thread": Setting("decoding", {"reader_pool_type": "dummy"}, cell_s=0.004),
    "slow decoding and trainer": Setting("decoding", {}, cell_s=0.01, step_s=0.04),
    "slow transform": Setting("transform", {"transform_spec": TransformSpec(slept)}),
    "slow transform, one worker": Setting("transform", {"transform_spec": TransformSpec(slept), "workers_count": 1}),
    "slow transform, processes": Setting(
        "transform", {"transform_spec": TransformSpec(slept), "reader_pool_type": "process"}
    ),
    "slow transform and trainer": Setting("transform", {"transform_spec": TransformSpec(slept)}, step_s=0.02),
    "slow trainer": Setting(None, {}, step_s=0.08),
    "slow trainer, one worker": Setting(None, {"workers_count": 1}, step_s=0.08),
    "slow trainer over a slow store": Setting(None, {}, store_s=0.01, step_s=0.1),
    "small shuffle buffer": Setting(
        "storage",
        {"shuffle_buffer_bytes": 1, "cur_shard": 0, "shard_count": 3},
        store_s=0.1,
        remedy="raise shuffle_buffer_bytes",
        batch_size=5,
    ),
    "small memory budget": Setting("decoding", {"memory_budget": "55MB"}, cell_s=0.006, remedy="raise memory_budget"),
}


IN_BRIEF = {"slow store", "slow decoding and trainer", "slow transform", "slow trainer", "small shuffle buffer"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_BRIEF else pytest.mark.slow) for name in SETTINGS]
)
def test_injected_bottleneck_is_diagnosed(name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for factor in LONGER:
        setting = SETTINGS[name].times(factor)
        monkeypatch.setattr(SleepyCodec, "sleep_s", setting.cell_s)
        with DataLoader(setting.open(url), setting.batch_size) as loader:
            waited = trained(loader, functools.partial(time.sleep, setting.step_s))
            found = loader.diagnosis()
        if setting.stage is None or abs(found.shares[setting.stage] - waited) < NOISE:
            break
    assert found.bottleneck == setting.stage, found
    assert found.wait_share == pytest.approx(waited, abs=NOISE), found
    if setting.stage is not None:
        assert found.shares[setting.stage] == pytest.approx(waited, abs=NOISE), found
        assert setting.remedy in found.remedies[0]


@pytest.mark.parametrize("stage", ["copy", "assembly"])
def test_slow_stage_of_the_loader_is_diagnosed(stage: Stage, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Carrier.begin

    def copied(carrier: Carrier, batch: Any) -> Any:
        time.sleep(0.05)
        return begin(carrier, batch)

    def collated(rows: list[dict[str, Any]]) -> Any:
        time.sleep(0.05)
        return rows

    monkeypatch.setattr(Carrier, "begin", copied)
    options: dict[str, Any] = {"device": "cpu"} if stage == "copy" else {"collate_fn": collated}
    with DataLoader(Setting(stage, {}).open(url), 20, **options) as loader:
        waited = trained(loader, lambda: time.sleep(0.02))
        found = loader.diagnosis()
    assert found.bottleneck == stage, found
    assert found.shares[stage] == pytest.approx(waited, abs=NOISE), found


def test_slow_rank_of_four_is_found(url: str) -> None:
    """All ranks step together, as with an all-reduce; the storage of one rank is slow."""
    found: dict[int, Diagnosis] = {}
    together = threading.Barrier(4)

    def train(rank: int) -> None:
        shard = {"cur_shard": rank, "shard_count": 4, "num_epochs": 4, "shuffle_rows": False}
        setting = Setting(None, shard, store_s=0.06 if rank == 2 else 0.0)
        with setting.open(url) as reader:
            for _ in reader.iter_batches(setting.batch_size):
                time.sleep(0.02)
                together.wait()
            found[rank] = reader.diagnosis()

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    compared = compare_ranks(list(found.values()))
    assert compared.slow_rank == 2, compared
    assert compared.diagnoses[2].bottleneck == "storage"


def test_diagnosis_does_not_count_rows_in_the_shuffle_buffer_as_loaded_again(url: str) -> None:
    with petastore.make_reader(url, workers_count=1, shuffle_rows=True, seed=1, num_epochs=2) as reader:
        batches = iter(DataLoader(reader, batch_size=20))
        for step in range(2 * ROWS // 20):
            next(batches)
            if step % 8 == 1:
                assert "is loaded" not in str(reader.diagnosis())


def test_diagnosis_counts_rows_that_are_loaded_again(url: str) -> None:
    options: dict[str, Any] = {"shuffle_rows": True, "shuffle_buffer_bytes": 1, "cur_shard": 0, "shard_count": 4}
    SleepyCodec.sleep_s = 0.002
    try:
        with petastore.make_reader(url, workers_count=1, seed=1, num_epochs=2, **options) as reader:
            for _ in DataLoader(reader, batch_size=2):
                pass
            said = str(reader.diagnosis())
    finally:
        SleepyCodec.sleep_s = 0.0
    assert "raise shuffle_buffer_bytes, since each row is loaded" in said
