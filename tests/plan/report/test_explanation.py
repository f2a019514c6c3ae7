"""Tests of `Mixture.explain`: memory, reads and mixing of each source equal those of reading the mixture."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from petastore.errors import InvalidArgumentError
from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest, Selection, Shard
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.report.explanation import SourceExplanation
from petastore.plan.selection import Pruned


def source(groups: int, rows: int, *, seed: int = 0, lanes: int = 6) -> Plan:
    order = Order(seed, shuffle_row_groups=True, shuffle_rows=True, lanes=lanes, block_rows=2 * rows)
    return Plan(Inventory.of_rows([rows] * groups), ReadRequest(("id",), order, Shard(0, 2)))


def mixture(sources: Sequence[Plan], **asked: Any) -> Mixture:
    return Mixture(sources, weights=[3, 1, 2][: len(sources)], **asked)


THREE = (source(60, 20, seed=1), source(12, 10, seed=2), source(30, 20, seed=3, lanes=4))


@pytest.mark.parametrize("batching", ["mixed", "per_source"])
@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted"])
def test_mixture_explain_counts_reads_and_memory(batching: str, stop: str) -> None:
    asked = mixture(THREE, batching=batching, stop=stop)
    fetched = np.zeros(102)
    for rank in (0, 1):
        of_rank = asked.for_shard(Shard(rank, 2))
        said = of_rank.explain(4)
        at_hand: set[int] = set()
        for span in of_rank.spans(4, rows_per_span=1):
            at_hand |= set(span.fetch)
            # A single batch may temporarily need more memory, also where a source starts again.
            passing = sum(int(asked.inventory.rows[group]) for group in {*span.fetch, *span.release})
            assert sum(int(asked.inventory.rows[group]) for group in at_hand) <= said.rows_resident + passing
            at_hand -= set(span.release)
            fetched[list(span.fetch)] += 1
    for first, explained in zip(asked.first_groups, said.sources, strict=False):
        of_source = fetched[first : first + explained.row_groups].sum()
        times = explained.bytes_to_fetch / (8 * explained.dataset_rows / explained.row_groups)
        assert of_source == pytest.approx(times, rel=0.1)


def test_mixture_explain_reports_rows_per_source() -> None:
    asked = mixture(THREE, stop="all_exhausted")
    said = asked.explain(4)
    assert tuple(each.rows_given for each in said.sources) == asked.rows_per_source
    assert tuple(each.proportion for each in said.sources) == asked.proportions
    assert [each.passes for each in said.sources] == pytest.approx([1, 3.33, 1.33], abs=0.01)
    assert (said.rows, said.steps, said.ranks) == (asked.num_rows, asked.steps_per_epoch(4), 2)
    shares = [asked.for_shard(Shard(rank, 2)).rows_per_epoch(4) for rank in (0, 1)]
    assert said.rows_per_rank == (min(shares), max(shares))
    assert said.bytes_to_fetch == sum(each.bytes_to_fetch for each in said.sources)


def test_mixture_explain_reports_mixing_per_source() -> None:
    def explained(block_rows: int) -> SourceExplanation:
        order = Order(1, shuffle_row_groups=True, shuffle_rows=True, lanes=4, block_rows=block_rows)
        sources = [Plan(Inventory.of_rows([20] * groups), ReadRequest(("id",), order)) for groups in (200, 100)]
        return Mixture(sources, weights=[2, 1]).explain(90).sources[0]

    little, much = explained(20), explained(4000)
    assert little.mixing_none > little.mixing > much.mixing + 0.1
    assert much.mixing == pytest.approx(much.mixing_uniform, abs=0.03)
    # On average, 60 of the 90 rows of a batch come from this source.
    order = Order(0, shuffle_row_groups=True, shuffle_rows=True, lanes=1, block_rows=1)
    alone = Plan(Inventory.of_rows([4000]), ReadRequest(("id",), order)).explain(60)
    assert much.mixing_uniform == alone.mixing_uniform


def test_mixture_explain_renders_as_json_and_text() -> None:
    chosen = Selection(np.array([10] * 6 + [0] * 6), {}, (Pruned("statistics", 6, 60),))
    filtered = Plan(THREE[1].inventory, THREE[1].request, chosen)
    said = mixture([THREE[0], filtered]).explain(4)
    facts = json.loads(json.dumps(said.as_dict()))
    assert facts["bytes_to_fetch"] == said.bytes_to_fetch
    assert facts["sources"][1]["pruned"] == [{"by": "statistics", "row_groups": 6, "rows": 60}]
    text = str(said)
    assert "2 sources, each batch of all of them" in text
    assert "source 1: 1 of 4 rows (25.0%)" in text
    assert "row groups  6 of 12; 6 pruned by statistics" in text
    assert text.count("of whole row groups, since sizes of columns are not known") == 1


def test_explain_of_endless_mixture_covers_at_least_one_epoch_per_source() -> None:
    said = mixture(THREE, stop="cycle", epochs=None).explain(4)
    assert [each.passes >= 1 for each in said.sources] == [True, True, True]
    assert "it never ends" in str(said)


def test_mixture_explain_counts_column_bytes_when_known() -> None:
    asked = mixture(THREE[:2], stop="all_exhausted")
    sizes = np.array([10] * 60 + [1000] * 12)
    known = asked.explain(4, column_bytes=sizes)
    assert (asked.explain(4).bytes_of, known.bytes_of) == ("row groups", "columns")
    first, second = known.sources
    assert first.bytes_to_fetch == pytest.approx(60 * 10, rel=0.1)
    assert 3 * 12_000 < second.bytes_to_fetch < 4 * 12_000  # three passes, and the start of a fourth
    with pytest.raises(InvalidArgumentError, match="72 row groups"):
        asked.explain(4, column_bytes=sizes[:60])


@pytest.mark.usefixtures("fonts")
@pytest.mark.parametrize("batching", ["mixed", "per_source"])
def test_mixture_plot_shows_all_sources(batching: str) -> None:
    asked = mixture(THREE, batching=batching, stop="all_exhausted")
    feeds = asked.feeds(4)
    walked = set()
    for rank in (0, 1):
        spans = list(asked.for_shard(Shard(rank, 2)).spans(4, rows_per_span=1))[:200]
        walked |= {(batch, rank, int(group)) for batch, span in enumerate(spans) for group in span.needed}
    said = zip(feeds.batches.tolist(), feeds.ranks.tolist(), feeds.row_groups.tolist(), strict=True)
    assert list(said) == sorted(walked)
    assert feeds.first_row_groups == (0, 60, 72, 102)
    axes = asked.plot(4).axes[0]
    assert "the first 200 of 30" in axes.get_title()
    assert axes.get_ylabel() == "row group, source after source"
    assert len(axes.lines) == 2 + 2  # borders between sources, and those in the legend
    asked.plot(4).savefig(io.BytesIO(), format="png", dpi=20)
