"""TensorBoard scalars of a reader or loader. Pass a `SummaryWriter` of any package; TensorBoard is not imported."""

from __future__ import annotations

from typing import Any

from petastore.monitoring.exported import DiagnosisSource, metrics_of

__all__ = ["write_scalars"]


def write_scalars(writer: Any, source: DiagnosisSource, step: int) -> None:
    """Write the metrics of a reader or loader as scalars of a step.

    Args:
        writer: Object with `add_scalar(tag, value, step)`, such as `torch.utils.tensorboard.SummaryWriter`.
        source: Reader, or loader over one.
        step: Training step.

    Example:
        >>> from petastore.monitoring.diagnosis import Counters, diagnose
        >>> class Writer:
        ...     def add_scalar(self, tag, value, step):
        ...         if value:
        ...             print(tag, value, step)
        >>> class Loader:
        ...     def diagnosis(self):
        ...         return diagnose(Counters(rows=7, elapsed_seconds=2.0, wait_seconds=1.0, wait_storage_seconds=1.0))
        >>> write_scalars(Writer(), Loader(), step=100)
        petastore/wait_seconds/storage 1.0 100
        petastore/elapsed_seconds 2.0 100
        petastore/rows 7.0 100
        petastore/wait_ratio 0.5 100
    """
    for metric in metrics_of(source):
        tag = "/".join(["petastore", metric.name.removeprefix("petastore_"), *_stage(metric.labels)])
        writer.add_scalar(tag, metric.value, step)


def _stage(labels: dict[str, str]) -> list[str]:
    return [labels["stage"]] if "stage" in labels else []
