"""One rank of a training run in its own process: trains, commits with the other ranks, and may be killed at any point.

Sockets made by the parent process connect the ranks to rank 0. After each step rank 0 gathers the rows of every rank,
writes them to a log, and moves the checkpoint into place. Only then do all ranks continue. The log of a step counts
once the checkpoint includes the step.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import petastore


def main(job: dict[str, Any]) -> None:
    """Train from the last checkpoint to the end.

    Args:
        job: `url`, `reader` (arguments of make_reader), `rank`, `ranks`, `batch_size`, `directory` for checkpoints,
            `sockets` (descriptors, to rank 0 or to all others), `hold` (where to wait for the kill: a step and a
            moment, or None).
    """
    directory, peers = Path(job["directory"]), [Connection(socket) for socket in job["sockets"]]
    filters = petastore.col("kept") == "yes" if job["filtered"] else None
    shard = {"cur_shard": job["rank"], "shard_count": job["ranks"]}
    with petastore.make_reader(job["url"], **job["reader"], **shard, filters=filters) as reader:
        steps = 0
        checkpoint = directory / "checkpoint.json"
        if checkpoint.exists():
            committed = json.loads(checkpoint.read_text())
            steps = committed["steps"]
            reader.load_state_dict(committed["state"])
        for batch in reader.iter_batches(job["batch_size"]):
            hold(job, steps, "given")
            mine = {"ids": batch["id"].tolist(), "state": reader.state_dict()}
            if job["rank"] > 0:
                peers[0].send_bytes(json.dumps(mine).encode())
                hold(job, steps, "sent")
                peers[0].recv_bytes()
            else:
                for moment in committing(directory, steps, [mine, *(json.loads(peer.recv_bytes()) for peer in peers)]):
                    hold(job, steps, moment)
                for peer in peers:
                    peer.send_bytes(b"go on")
            steps += 1


def committing(directory: Path, steps: int, ranks: list[dict[str, Any]]) -> Iterator[str]:
    """Commit a step of all ranks; yield the moments in between, at each of which the rank may be killed."""
    states = [rank["state"] for rank in ranks]
    assert all(state == states[0] for state in states), f"ranks have different states: {states}"
    yield "gathered"
    (directory / f"step-{steps}.json").write_text(json.dumps([rank["ids"] for rank in ranks]))
    aside = directory / "checkpoint.aside"
    aside.write_text(json.dumps({"steps": steps + 1, "state": states[0]}))
    yield "written aside"
    aside.replace(directory / "checkpoint.json")
    yield "committed"


def hold(job: dict[str, Any], step: int, moment: str) -> None:
    """Report the moment and wait to be killed, if the job says so."""
    if job["hold"] == [step, moment]:
        print(f"held at step {step}, {moment}", flush=True)
        sys.stdin.read()
        os.abort()  # reached only if the kill did not come


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
