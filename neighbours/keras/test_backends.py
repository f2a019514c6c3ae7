"""Keras' own `fit` on its three backends, over real datasets, also after its process died."""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neighbours.conftest import REPOSITORY
from neighbours.two_processes import SETTINGS
from petastore import Unischema, UnischemaField, write_dataset
from tests.pace import patience

PROGRAM = Path(__file__).parent / "fit.py"
ROWS = 103
BACKENDS = ["tensorflow", "jax", "torch"]

GENERATOR = """
import json
import keras
import numpy as np

class Counts(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        self.rows = self.add_weight(shape=(60,), initializer="zeros")
    def update_state(self, y_true, y_pred, sample_weight=None):
        self.rows.assign_add(keras.ops.sum(keras.ops.one_hot(keras.ops.cast(y_true[:, 0], "int32"), 60), 0))
    def result(self):
        return keras.ops.sum(self.rows)
    def reset_state(self):
        pass

def batches():
    for first in range(0, 60, 10):
        x = np.arange(first, first + 10, dtype="float32")[:, None]
        yield x / 60, x

counts = Counts()
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse", metrics=[counts])
model.fit(batches(), epochs=2, verbose=0)
print(json.dumps(keras.ops.convert_to_numpy(counts.rows).tolist()))
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("data") / "ids")
    schema = Unischema("Ids", [UnischemaField("id", "int32")])
    write_dataset(where, schema, [{"id": i} for i in range(ROWS)], rows_per_row_group=13)
    return where


def ended(program: list[str], folder: Path, backend: str, *, code: int = 0) -> str:
    """What a program printed that ended with a code."""
    ran = subprocess.run(
        [sys.executable, *program],
        cwd=folder,
        env=os.environ | SETTINGS | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(100),
    )
    assert ran.returncode == code, ran.stderr
    return ran.stdout


def fitted(url: str, folder: Path, backend: str, *, die_after: int = 0, steps: int = 0) -> Any:
    """What came of a run, and the batches that it trained on."""
    folder.mkdir(exist_ok=True)
    log = folder / f"trained-{len(list(folder.iterdir()))}"
    arguments = [str(PROGRAM), url, str(log), str(die_after), str(steps)]
    printed = ended(arguments, folder, backend, code=17 if die_after else 0)
    return json.loads(printed.splitlines()[-1]) if printed else None, [
        json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fit_that_died_goes_on_with_the_batch_after_the_weights_that_were_kept(
    url: str, backend: str, tmp_path: Path
) -> None:
    undisturbed, batches = fitted(url, tmp_path / "undisturbed", backend)
    assert len(batches) == 33
    for epoch in range(3):
        assert sorted(i for batch in batches[11 * epoch : 11 * epoch + 11] for i in batch) == list(range(ROWS))
    assert batches[:11] != batches[11:22]  # each epoch has an order of its own

    _, before = fitted(url, tmp_path / "died", backend, die_after=18)
    resumed, after = fitted(url, tmp_path / "died", backend)
    assert before == batches[:18]
    assert after == batches[16:]  # what was kept last: the weights of 16 batches, in the middle of an epoch
    assert collections.Counter(i for batch in [*before[:16], *after] for i in batch) == dict.fromkeys(range(ROWS), 3)
    assert resumed["weights"] == pytest.approx(undisturbed["weights"], abs=1e-6)
    assert (undisturbed["validated"], resumed["validated"]) == (3, 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_epochs_of_so_many_steps_go_through_the_data_one_after_another(url: str, backend: str, tmp_path: Path) -> None:
    _, before = fitted(url, tmp_path, backend, die_after=16, steps=7)
    _, after = fitted(url, tmp_path, backend, steps=7)
    committed = [*before[:14], *after]
    assert len(committed) == 35
    for epoch in range(3):
        assert sorted(i for batch in committed[11 * epoch : 11 * epoch + 11] for i in batch) == list(range(ROWS))


@pytest.mark.parametrize("backend", BACKENDS)
def test_of_a_generator_the_second_epoch_has_the_first_two_batches_alone(backend: str, tmp_path: Path) -> None:
    """The control: why there is a `PyDataset`."""
    counts = json.loads(ended(["-c", GENERATOR], tmp_path, backend).splitlines()[-1])
    assert counts == [2] * 20 + [1] * 40


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_page_runs_on_every_backend(backend: str, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "train-with-keras.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    ended(["-c", "\n".join(blocks)], tmp_path, backend)
