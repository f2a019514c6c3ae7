"""Invalid option values."""

from __future__ import annotations

from petastore import (
    TransformSpec,
    Unischema,
    make_batch_reader,
    make_mixed_reader,
    make_reader,
    open_dataset,
    write_dataset,
)
from petastore.codecs import CompressedImageCodec

make_reader("users", last_batch="evn")  # type: ignore[arg-type]
make_reader("users", reader_pool_type="threads")  # type: ignore[arg-type]
make_reader("users", reshuffle_each_epoch="never")  # type: ignore[arg-type]
make_batch_reader("users", cache_type="disk")  # type: ignore[arg-type]
make_batch_reader("users", hdfs_driver="webhdfs")  # type: ignore[arg-type]
make_mixed_reader(["a", "b"], [1, 1], stop="first")  # type: ignore[arg-type]
make_mixed_reader(["a", "b"], [1, 1], batching="per source")  # type: ignore[arg-type]
open_dataset("users").plan(last_batch="evn")  # type: ignore[arg-type]
TransformSpec(takes="rows")  # type: ignore[arg-type]
write_dataset("users", Unischema("user", []), [], mode="replace")  # type: ignore[arg-type]
write_dataset("users", Unischema("user", []), [], compression="rar")  # type: ignore[arg-type]
CompressedImageCodec("gif")  # type: ignore[arg-type]
CompressedImageCodec("jpeg", quality=90)
