"""OpenTelemetry exporter of a reader or loader (extra `metrics`)."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from petastore.errors import MissingExtraError

try:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter
except ImportError:
    raise MissingExtraError("observe", package="opentelemetry", extra="metrics") from None

from petastore.monitoring.exported import DiagnosisSource, metrics_of

__all__ = ["observe"]


def observe(source: DiagnosisSource, meter: Meter | None = None) -> None:
    """Publish the metrics of a reader or loader as observable instruments of OpenTelemetry.

    Values are computed when a metric reader collects. Names and values are the same as in the Prometheus exporter, but
    with dots: `petastore.wait.seconds` with the attribute `stage`. All instruments are gauges, because the counters
    start at 0 again with each iteration.

    Args:
        source: Reader, or loader over one.
        meter: Meter; None uses the global meter provider.

    Example:
        >>> from opentelemetry.sdk.metrics import MeterProvider
        >>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        >>> from petastore.monitoring.diagnosis import Counters, diagnose
        >>> class Loader:
        ...     def diagnosis(self):
        ...         return diagnose(Counters(rows=7))
        >>> collected = InMemoryMetricReader()
        >>> observe(Loader(), MeterProvider([collected]).get_meter("train"))
        >>> metrics = collected.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        >>> [metric.data.data_points[0].value for metric in metrics if metric.name == "petastore.rows"]
        [7.0]
    """
    meter = get_meter("petastore") if meter is None else meter
    for name, text in {metric.name: metric.help for metric in metrics_of(source)}.items():
        values = functools.partial(_observations, source, name)
        meter.create_observable_gauge(name.replace("_", "."), [values], description=text)


def _observations(source: DiagnosisSource, name: str, _: CallbackOptions) -> Iterable[Observation]:
    return [Observation(metric.value, metric.labels) for metric in metrics_of(source) if metric.name == name]
