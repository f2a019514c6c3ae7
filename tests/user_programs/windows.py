"""Windows of `NGram`."""

from __future__ import annotations

from petastore import NGram, make_reader

with make_reader("tracks", NGram({0: ["time"], 1: ["time", "speed"]}, 10, "time")) as reader:
    for window in reader:
        print(window[0].time, window[1].speed)
    for batch in reader.iter_batches(8):
        print(batch["time"].shape)
