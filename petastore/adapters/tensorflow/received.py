"""The state after as much of the iteration under way as training has had."""

from __future__ import annotations

from typing import Any

from petastore.adapters.received import received_of
from petastore.plan.request import whole_number
from petastore.plan.state import dump_state

__all__ = ["state_after"]


def state_after(reader: Any, batches: int) -> dict[str, Any]:
    """The state after as many batches of the iteration under way (rows, where the dataset gives rows).

    TensorFlow reads ahead of training, by runs of batches and by what `prefetch` adds, and `reader.state_dict()` says
    how far the reader is. Only the trainer knows how many batches it has had. Continuing from this state gives what
    follows them: pass it to `load_state_dict` of a reader before its dataset is made.

    Args:
        reader: What the dataset was made of.
        batches: Batches received since the iteration, or the epoch of `fit`, began; from 1. With `repeat()`, in the
            newest repetition, which may have begun ahead of training: prefer `num_epochs` of the reader.

    Raises:
        InvalidArgumentError: TensorFlow was not given as many, or over 65,536 more; or the dataset gives rows of a
            batch reader, which counts no rows.

    Example:
        >>> import petastore, tempfile
        >>> from petastore.adapters.tensorflow import make_tf_dataset
        >>> url = tempfile.mkdtemp() + "/ids"
        >>> schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
        >>> _ = petastore.write_dataset(url, schema, [{"id": i} for i in range(10)])
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     for step, batch in enumerate(make_tf_dataset(reader, batch_size=3).prefetch(2), start=1):
        ...         if step == 2:
        ...             break
        ...     state = state_after(reader, step)
        >>> with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        ...     reader.load_state_dict(state)
        ...     [batch["id"].numpy().tolist() for batch in make_tf_dataset(reader, batch_size=3)]
        [[6, 7, 8], [9]]
    """
    batches = whole_number(batches, name="batches", least=1)
    return dump_state(reader.plan, received_of(reader).cursor_in_pass(batches))
