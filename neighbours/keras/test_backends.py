"""Tests of Keras `fit` on its three backends, over real datasets, also after the process was killed."""

from __future__ import annotations

import collections
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neighbours.conftest import REPOSITORY
from neighbours.two_processes import SETTINGS
from petastore import Unischema, UnischemaField, write_dataset
from tests.warm_interpreters import WarmInterpreter

PROGRAM = (Path(__file__).parent / "fit.py").read_text(encoding="utf-8")
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


@pytest.fixture(scope="module", params=BACKENDS)
def keras(request: pytest.FixtureRequest) -> Iterator[WarmInterpreter]:
    """Yield an interpreter that has imported Keras and one backend but not used them; programs are forked from it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (SETTINGS | {"KERAS_BACKEND": request.param}).items():
            patch.setenv(name, value)
        interpreter = WarmInterpreter("keras", "petastore", "petastore.adapters.keras")
        with contextlib.closing(interpreter):
            yield interpreter


def ended(keras: WarmInterpreter, program: str, folder: Path, *arguments: object, code: int = 0) -> str:
    """Return the output of a program that ends with an exit code."""
    ran = keras.run(program, *arguments, cwd=folder, timeout=100)
    assert ran.returncode == code, ran.stderr
    return ran.stdout


def fitted(keras: WarmInterpreter, url: str, folder: Path, *, die_after: int = 0, steps: int = 0) -> Any:
    """Return the result of a run, and the batches that it trained on."""
    folder.mkdir(exist_ok=True)
    log = folder / f"trained-{len(list(folder.iterdir()))}"
    printed = ended(keras, PROGRAM, folder, url, log, die_after, steps, code=17 if die_after else 0)
    return json.loads(printed.splitlines()[-1]) if printed else None, [
        json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()
    ]


def test_fit_resumes_with_the_batch_after_the_saved_weights(url: str, keras: WarmInterpreter, tmp_path: Path) -> None:
    undisturbed, batches = fitted(keras, url, tmp_path / "undisturbed")
    assert len(batches) == 33
    for epoch in range(3):
        assert sorted(i for batch in batches[11 * epoch : 11 * epoch + 11] for i in batch) == list(range(ROWS))
    assert batches[:11] != batches[11:22]  # each epoch has a different order

    _, before = fitted(keras, url, tmp_path / "died", die_after=18)
    resumed, after = fitted(keras, url, tmp_path / "died")
    assert before == batches[:18]
    assert after == batches[16:]  # the last backup has the weights after 16 batches, in mid-epoch
    assert collections.Counter(i for batch in [*before[:16], *after] for i in batch) == dict.fromkeys(range(ROWS), 3)
    assert resumed["weights"] == pytest.approx(undisturbed["weights"], abs=1e-6)
    assert (undisturbed["validated"], resumed["validated"]) == (3, 2)


def test_keras_fit_with_steps_per_epoch_resumes_mid_epoch_after_a_kill(
    url: str, keras: WarmInterpreter, tmp_path: Path
) -> None:
    _, before = fitted(keras, url, tmp_path, die_after=16, steps=7)
    _, after = fitted(keras, url, tmp_path, steps=7)
    committed = [*before[:14], *after]
    assert len(committed) == 35
    for epoch in range(3):
        assert sorted(i for batch in committed[11 * epoch : 11 * epoch + 11] for i in batch) == list(range(ROWS))


def test_keras_page_program_runs_and_keras_drops_batches_of_a_generator(keras: WarmInterpreter, tmp_path: Path) -> None:
    """The generator is the control that shows why `PyDataset` exists."""
    page = (REPOSITORY / "docs" / "how-to" / "train-with-keras.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    counts = json.loads(ended(keras, "\n".join([*blocks, GENERATOR]), tmp_path).splitlines()[-1])
    assert counts == [2] * 20 + [1] * 40
