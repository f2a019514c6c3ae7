"""Write the report `benchmarks/accelerators/report.md` from the stored results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.accelerators.workloads import WORKLOADS
from benchmarks.bench.tables import markdown
from benchmarks.storage.figures import HEADER, Figure, line_of

__all__ = ["page_of"]

_HEAD = """\
# Accelerators kept busy

<!-- Written by `make accelerators A=--publish`; edit benchmarks/accelerators/page.py instead. -->

Does an accelerator wait for data, when all of it is decoded? [dlio-benchmark][dlio] is what [MLPerf Storage][mlperf]
runs: it trains without a model, and simulates accelerators by sleeping, so it needs no GPU. `make accelerators` runs
it, as it is released, in `.neighbours`, with petastore and with its own readers. `make accelerators A='--only tensors'`
runs some; `A=--publish` writes this page. `python -m benchmarks.busy` asks a real GPU.

[dlio]: https://github.com/argonne-lcf/dlio_benchmark
[mlperf]: https://github.com/mlcommons/storage

## How it is measured

* **Accelerator utilisation** is DLIO's own figure, as MLPerf Storage defines it: time of computing over time, from the
  end of an epoch's first step on, the mean of five epochs. That many are configured for ResNet-50, of 3,200 steps each.
  Data of a laptop's size have 16 and 24 steps, and in the first epoch memory is touched for the first time; it is shown
  by itself, too. *Steady* is the same over the second half of an epoch's steps; what was read ahead during its first
  step is used up by then.
* **The limit** is one process that reads the same Parquet files with pyarrow, in their order, and decodes what is in
  them, on a thread for each CPU, some row groups ahead: no batches, no order, no tensors. It is a data loader for DLIO,
  too, which hands over as many row groups in a step as have a batch's rows. How fast it decodes where nobody asks for
  steps is measured before each setting. Ratios are taken within a round, figures are medians over rounds.
* **Where the limit keeps an accelerator busy** (99 % and more), petastore has to. Where it does not, petastore has to
  reach .95 of what the limit does.
* **Demands**: the step's time as MLPerf Storage configures it, and steps so short that accelerators ask for 0.5, 0.9
  and 1.5 times what the limit decodes.
* **petastore** is a data loader for DLIO (`benchmarks/accelerators/loaders.py`): `make_reader(..., shuffle_rows=True)`
  and the torch `DataLoader`, with their defaults. It hands over what is in the data, shuffled by rows. One reader
  gives all epochs, one after the other (`num_epochs=`), and reads on from one to the next.
* **DLIO's own readers** run in its torch loader, with as many worker processes as were fastest. They read in the order
  of the files, which is less work; and for each sample they hand over one array made beforehand, whatever was read.
  Pictures are read and decoded by its `ImageReader`, but for a message that names all files, which the release puts
  together for each sample and throws away; as released it is shown, too. The release on PyPI (2.0.0) reads no Parquet;
  the fork that MLPerf Storage pins has a reader that [decoded at first and reached 54 %][decoded], and since then [does
  not decode local files][raw]. `benchmarks/accelerators/readers.py` reads as the fork did and decodes; its batches are
  just the row groups, so each is read once.
* **A loader that never waits** shows what DLIO's own loop leaves of 100 %.
* **On a busy machine** the figures say less: the system shares its CPUs out by threads, so that four worker processes
  get about twice as much as the two threads of a reader or of the limit. The load is printed below each table.
* **DLIO is not changed.** It is installed without its dependencies, since DALI is had from NVIDIA alone; the loaders
  used here do not import it. Its tracer is switched off.

[decoded]: https://github.com/mlcommons/storage/issues/364
[raw]: https://github.com/mlcommons/storage/pull/378
"""

_BY_HAND = """\
## By hand

The settings are ordinary configurations of DLIO, with the loader as a plug-in; data are made by the first `make
accelerators`:

```text
loader=benchmarks.accelerators.loaders.PetastoreLoader
PYTHONPATH=. DFTRACER_ENABLE=0 .neighbours/bin/dlio_benchmark \\
    --config-dir=$PWD/benchmarks/accelerators/configs workload=pictures \\
    workload.dataset.data_folder=$PWD/.bench/accelerators/pictures-6400 \\
    workload.dataset.num_files_train=6400 \\
    ++workload.reader.data_loader_sampler=iterative \\
    ++workload.reader.data_loader_classname=$loader
```
"""


def page_of(results: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        results: `machine` (facts by name) and `shown` (by workload: date, load, figures), as the JSON file holds them.
    """
    machine = "## The machine\n\n" + "\n".join(f"* {name}: {fact}" for name, fact in results["machine"].items()) + "\n"
    sections = [_section(name, results["shown"][name]) for name in WORKLOADS if name in results["shown"]]
    return "\n".join([_HEAD, machine, *sections, _BY_HAND])


def _section(name: str, found: Mapping[str, Any]) -> str:
    """A table, with its date and how busy the machine was."""
    part = "" if found["scale"] == 1.0 else f", with {found['scale']:.0%} of the rows"
    table = markdown([HEADER, *(line_of(Figure.parse(figure)) for figure in found["figures"])])
    return (
        f"## {name}\n\n{WORKLOADS[name].what}.\n\n{table}\n\n"
        f"Measured on {found['date']} in {found['rounds']} rounds{part}, which took {found['seconds']:.0f} s; load of "
        f"the machine before {found['load']:.1f}, after {found['load_after']:.1f}.\n"
    )
