"""Tests of torch's profiler, and of tools that patch `DataLoader.__iter__`: both see each batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.profiler

import petastore
from petastore.adapters.torch import DataLoader
from petastore.adapters.torch.tensors import RANGE


def test_profiler_has_a_range_for_each_batch(tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "x", {"x": np.arange(100)})
    with DataLoader(petastore.make_reader(tmp_path / "x"), 10) as loader:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            assert len(list(loader)) == 10
        (found,) = [event for event in profile.key_averages() if event.key == RANGE]
        assert found.count == 11  # the last one is the end of the iteration
        assert len(list(loader)) == 10


def test_patched_iter_of_the_torch_dataloader_sees_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    petastore.write_dataset(tmp_path / "x", {"x": np.arange(100)})
    original, timed = torch.utils.data.DataLoader.__iter__, []

    def timing(loader: Any) -> Iterator[Any]:
        for batch in original(loader):
            timed.append(batch)
            yield batch

    monkeypatch.setattr(torch.utils.data.DataLoader, "__iter__", timing)
    with DataLoader(petastore.make_reader(tmp_path / "x"), 10) as loader:
        for _ in range(2):
            assert len(list(loader)) == 10
    assert len(timed) == 20
