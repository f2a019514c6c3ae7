"""Prometheus exporter of a reader or loader (extra `metrics`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from petastore.errors import MissingExtraError

try:
    from prometheus_client import REGISTRY
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector, CollectorRegistry
except ImportError:
    raise MissingExtraError("PrometheusCollector", package="prometheus_client", extra="metrics") from None

from petastore.monitoring.exported import DiagnosisSource, metrics_of

__all__ = ["PrometheusCollector"]


class PrometheusCollector(Collector):
    r"""Prometheus collector of a reader or loader; the constructor registers it.

    Values are computed only when Prometheus scrapes. Counters start at 0 with each iteration of the reader; Prometheus'
    `rate` and `increase` support this. To serve the metrics, call `prometheus_client.start_http_server(8000)`.

    Args:
        source: Reader, or loader over one.
        registry: Registry of prometheus_client.

    Example:
        >>> from prometheus_client import generate_latest
        >>> from petastore.monitoring.diagnosis import Counters, diagnose
        >>> class Loader:
        ...     def diagnosis(self):
        ...         return diagnose(Counters(rows=7, elapsed_seconds=2.0, wait_seconds=1.0))
        >>> registry = CollectorRegistry()
        >>> collector = PrometheusCollector(Loader(), registry)
        >>> print(*(line for line in generate_latest(registry).decode().splitlines() if line.startswith(
        ...     ("petastore_rows_total", "petastore_wait_ratio"))), sep="\n")
        petastore_rows_total{rank="0"} 7.0
        petastore_wait_ratio{rank="0"} 0.5
    """

    def __init__(self, source: DiagnosisSource, registry: CollectorRegistry = REGISTRY) -> None:
        self._source, self._registry = source, registry
        registry.register(self)

    def describe(self) -> list[Metric]:
        """Return an empty list, so that values are read only when Prometheus scrapes, not at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics; prometheus_client calls this method at each scrape."""
        families: dict[str, Any] = {}
        for metric in metrics_of(self._source):
            family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            found = families.setdefault(metric.name, family(metric.name, metric.help, labels=list(metric.labels)))
            found.add_metric(list(metric.labels.values()), metric.value)
        yield from families.values()

    def close(self) -> None:
        """Remove the collector from its registry."""
        self._registry.unregister(self)
