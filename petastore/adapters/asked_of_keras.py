"""Whether Keras, where the program has it, distributes data in a way that does not go with a reader."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["refuse_what_keras_would_shard"]


def refuse_what_keras_would_shard(reader: Any, batch_size: int | None, *, is_tf_dataset: bool = False) -> None:
    """As `petastore.adapters.keras.refuse_other_shards`, and nothing where nobody has imported Keras 3.

    Keras keeps its distribution for the thread that set it; asked in another one, it knows of none.
    """
    if hasattr(sys.modules.get("keras"), "distribution"):
        from petastore.adapters.keras.distribution import refuse_other_shards

        refuse_other_shards(reader, batch_size, is_tf_dataset=is_tf_dataset)
