"""Metrics of a reader or loader, in the form that all exporters (Prometheus, OpenTelemetry, TensorBoard) publish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from petastore.monitoring.activity import STAGES
from petastore.monitoring.diagnosis import Diagnosis

__all__ = ["DiagnosisSource", "Metric", "metrics_of"]


class DiagnosisSource(Protocol):
    """Interface of a `Reader`, or of a loader over a reader."""

    def diagnosis(self) -> Diagnosis:
        """Return whether the input is the bottleneck of training, and in which stage; see `Reader.diagnosis`."""


class Metric(NamedTuple):
    """One metric; its name contains the unit, as in Prometheus."""

    name: str
    help: str
    value: float
    labels: dict[str, str]
    is_counter: bool
    """Whether the value only grows during an iteration of the reader, and starts at 0 with the next one."""


def metrics_of(source: DiagnosisSource) -> list[Metric]:
    """Return the current metrics of a reader or loader.

    Example:
        >>> from petastore.monitoring.diagnosis import Counters
        >>> class Loader:
        ...     def diagnosis(self):
        ...         return Diagnosis(None, (), Counters(rows=7))
        >>> [metric.value for metric in metrics_of(Loader()) if metric.name == "petastore_rows"]
        [7.0]
    """
    found = source.diagnosis()
    counters, rank = found.counters, {"rank": str(found.counters.rank)}
    diagnostics = getattr(getattr(source, "reader", source), "diagnostics", {})
    waits = "Time that training waited for data, by stage"
    ready = "Mean number of spans that were ready when training requested one"
    metrics: list[tuple[str, str, float, Mapping[str, str], bool]] = [
        *(
            ("wait_seconds", waits, getattr(counters, f"wait_{stage}_seconds"), {"stage": stage}, True)
            for stage in STAGES
        ),
        ("elapsed_seconds", "Time of training and waiting", counters.elapsed_seconds, {}, True),
        ("rows", "Rows handed over", counters.rows, {}, True),
        ("row_groups_loaded", "Loaded row groups", counters.row_groups_loaded, {}, True),
        ("wait_ratio", "Share of the time that training waited for data", found.wait_share, {}, False),
        ("ready_spans", ready, counters.ready_spans_mean, {}, False),
        *(
            (name, f"{name} of Reader.diagnostics", value, {}, True)
            for name, value in diagnostics.items()
            if name.startswith(("storage_", "cache_", "footer_"))
        ),
    ]
    return [
        Metric(f"petastore_{name}", text, float(value), {**rank, **labels}, is_counter)
        for name, text, value, labels, is_counter in metrics
    ]
