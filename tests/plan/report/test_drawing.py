"""Tests of `Plan.plot`: which row group feeds which batch, with ranks as colors, and sampled long epochs."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from petastore.errors import MissingExtraError
from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest, Shard

pytestmark = pytest.mark.usefixtures("fonts")


def plan(groups: int, ranks: int, rows: int = 10) -> Plan:
    order = Order(seed=3, shuffle_row_groups=True, shuffle_rows=True, lanes=min(groups, 6) or 1, block_rows=20)
    return Plan(Inventory.of_rows([rows] * groups), ReadRequest(("id",), order, Shard(0, ranks)))


def drawn(figure: Any) -> tuple[Any, bytes]:
    """Render a figure; return its axes and the PNG."""
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=50)
    return figure.axes[0], sink.getvalue()


def test_plot_draws_row_groups_in_rank_colors() -> None:
    feeds, figure = plan(12, 2).feeds(4), plan(12, 2).plot(4)
    axes, png = drawn(figure)
    (lines,) = axes.collections
    middles = np.array([line.mean(axis=0) for line in lines.get_segments()])
    assert np.array_equal(middles, np.stack([feeds.batches, feeds.row_groups], axis=1))
    assert np.array_equal(lines.get_array(), feeds.ranks)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["rank 0", "rank 1"]
    assert axes.get_title() == "Which row group feeds which batch"
    assert png.startswith(b"\x89PNG")


def test_plot_title_reports_a_sampled_epoch() -> None:
    axes, _ = drawn(plan(60, 1, rows=100).plot(3))
    assert axes.get_title() == "Which row group feeds which batch: 200 of 2,000 batches, evenly spaced"
    assert axes.get_legend() is None


def test_plot_uses_a_color_scale_for_many_ranks() -> None:
    figure = plan(48, 16).plot(2)
    drawn(figure)
    assert [axes.get_ylabel() for axes in figure.axes] == ["row group, as stored", "rank"]


@pytest.mark.parametrize("groups", [0, 1])
def test_plot_works_for_tiny_plans(groups: int) -> None:
    _, png = drawn(plan(groups, 1, rows=1).plot(4))
    assert png.startswith(b"\x89PNG")


def test_plot_differs_between_epochs() -> None:
    first, second = (drawn(plan(12, 2).plot(4, epoch=epoch))[1] for epoch in (0, 1))
    assert first != second


def test_plot_error_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'petastore\[plot\]'"):
        plan(2, 1).plot(4)


def test_explain_does_not_import_matplotlib() -> None:
    program = (
        "import sys, petastore.plan as p; from petastore.inventory import Inventory as I;"
        "order = p.Order(0, True, True, 1, 1); plan = p.Plan(I.of_rows([3]), p.ReadRequest(('id',), order));"
        "print(plan.explain(2)); plan.feeds(2); assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
