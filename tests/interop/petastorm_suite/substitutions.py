"""Text replacements in Petastorm's tests, for features that current NumPy, pandas, pyarrow, Python and pytest lack.

Each entry must be used: a run fails if its text does not occur.
"""

from __future__ import annotations

import dataclasses
from typing import Final

__all__ = ["SUBSTITUTIONS", "Substitution"]


@dataclasses.dataclass(frozen=True, slots=True)
class Substitution:
    """Text to replace in Petastorm's tests."""

    before: str
    """Regular expression of the text."""

    after: str
    """Replacement, as for `re.sub`."""

    because: str
    """Reason for the replacement."""

    files: tuple[str, ...] = ()
    """Names of the files to change, without `.py`; empty for all files."""


SUBSTITUTIONS: Final = (
    Substitution(r"\bnp\.unicode_\b", "np.str_", "NumPy 2 has np.str_ alone"),
    Substitution(r"\bnp\.string_\b", "np.bytes_", "NumPy 2 has np.bytes_ alone"),
    Substitution(
        r"result = \[True\] \* len\(values\)$",
        "result = __import__('numpy').ones(len(values), dtype=bool)",
        "pandas 3 has no `&` of a list and a column",
    ),
    Substitution(r"^import dill$", "from pyspark import cloudpickle as dill", "dill is not installed here"),
    Substitution(r"\bnp\.float\)", "float)", "NumPy 1.24 removed np.float"),
    Substitution(r"^import pytz$", "import datetime", "pandas 3 no longer brings pytz"),
    Substitution(r"\bpytz\.UTC\b", "datetime.timezone.utc", "pandas 3 no longer brings pytz"),
    Substitution(r"^import pyarrow\.hdfs$", "import pyarrow.fs", "pyarrow 16 removed pyarrow.hdfs"),
    Substitution(r"\bpyarrow\.LocalFileSystem\b", "pyarrow.fs.LocalFileSystem", "pyarrow 16 removed the older class"),
    Substitution(
        r"^import pyarrow$",
        "import pyarrow.fs",
        "pyarrow's file systems are in a module of their own",
        files=("test_dataset_metadata",),
    ),
    Substitution(
        r"^from pyarrow\.filesystem import LocalFileSystem$",
        "from fsspec.implementations.local import LocalFileSystem",
        "pyarrow 16 removed pyarrow.filesystem, whose methods fsspec's filesystems have",
    ),
    Substitution(r"piece\.get_metadata\(\)", "piece.metadata", "pyarrow's datasets have fragments, not pieces"),
    Substitution(r"in dataset\.pieces\b", "in dataset.fragments", "pyarrow's datasets have fragments, not pieces"),
    Substitution(
        r"dataset\.common_metadata_path",
        "a_moved_path + '/_common_metadata'",
        "pyarrow's datasets know nothing of _common_metadata",
        files=("test_generate_metadata",),
    ),
    Substitution(
        r"assert dataset\.metadata\b",
        "assert os.path.exists(a_moved_path + '/_metadata')",
        "pyarrow's datasets know nothing of _metadata",
        files=("test_generate_metadata",),
    ),
    Substitution(
        r"type\(dataset_mock\)\.partitions = partitions",
        "dataset_mock.schema = pa.schema([*partitions, *arrow_schema])",
        "pyarrow's datasets have a schema, with the partition columns in it",
        files=("test_unischema",),
    ),
    Substitution(
        r"pq\.PartitionSet\('part_name', \['a', 'b'\]\)",
        "pa.field('part_name', pa.string())",
        "pyarrow's datasets have partition columns, not sets",
        files=("test_unischema",),
    ),
    Substitution(
        r"pq\.PartitionSet\('part_name', \['0', '1', '2'\]\)",
        "pa.field('part_name', pa.int64())",
        "pyarrow's datasets have partition columns, not sets",
        files=("test_unischema",),
    ),
    Substitution(r"inspect\.getargspec", "inspect.getfullargspec", "Python 3.11 removed getargspec"),
    Substitution(
        r"^from distutils\.version import LooseVersion$",
        "from packaging.version import Version as LooseVersion",
        "Python 3.12 removed distutils",
    ),
    Substitution(
        r"pytest\.warns\(None\)",
        "__import__('warnings').catch_warnings(record=True)",
        "pytest 8 no longer takes None",
    ),
    Substitution(
        r"^def pytest_logger_config\(",
        "def config_of_a_plugin_that_is_not_here(",
        "pytest-logger, whose hook it is, prints logs and tests nothing",
    ),
    Substitution(
        r"^@mock\.patch\('petastorm\.unischema\._UNISCHEMA_FIELD_ORDER', 'alphabetical'\)$",
        "#",
        "a private name: fields always keep the order in which they are passed",
    ),
    Substitution(
        r"^    from torchvision import transforms$",
        "    from types import SimpleNamespace as S; transforms = S(Compose=lambda of: of[0], Lambda=lambda f: f)",
        "torchvision is not installed here, and calling one function is all that it does there",
    ),
)
"""Applied in this order."""
