"""A worker of an elastic job, to be started by `horovodrun`: it records which rows it trained on.

`elastic_worker.py FOLDER WAY EVERY DOOMED`: the folder has a dataset, and a file of the current hosts, which `hosts.sh`
prints for Horovod. The job has two epochs. After some steps, each with a commit, the hosts change. At one step the
first worker of the doomed host, if any, kills itself between reading a batch and training on it. All others then return
to the last commit; there is one every `EVERY` steps. Rank 0 is on localhost. Horovod excludes a host on which a worker
died.

The ways are `reader`, petastore's `ElasticDataLoader`; `sampler`, Horovod's own `ElasticSampler` over a `MapDataset`,
used as in Horovod's example; and `told-sampler`, the same with a reset callback.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
import torch.utils.data

from petastore import make_reader
from petastore.adapters.horovod import ElasticDataLoader
from petastore.adapters.torch import MapDataset

EPOCHS = 2
BATCH_SIZE = 4
HOSTS_AFTER_STEP = {3: ["localhost:1"], 9: ["localhost:1", "127.0.0.1:1"]}
LATER_HOSTS = {15: ["localhost:2", "127.0.0.1:1"]}
"""Only for `reader`; the other ways train on two ranks until the end."""
LAST_AFTER_STEP = 36
"""If two hosts remain, the job shrinks to one rank after this step."""
DIES_BEFORE_STEP = 20


class Reader:
    """Petastore's `ElasticDataLoader`."""

    def __init__(self, url: str) -> None:
        reader = make_reader(
            url, cur_shard=hvd.rank(), shard_count=hvd.size(), shuffle_rows=True, seed=3, workers_count=1
        )
        self.kept = ElasticDataLoader(reader, batch_size=BATCH_SIZE)

    def epoch(self, state: Any) -> Iterator[dict[str, Any]]:
        """Return the remaining batches of the epoch."""
        return iter(state.kept)

    def trained(self, state: Any) -> None:
        """Do nothing: the loader counts steps."""

    def epoch_done(self, state: Any) -> None:
        """Do nothing: the loader counts epochs."""


class Sampler:
    """Horovod's `ElasticSampler`, as in Horovod's example."""

    def __init__(self, url: str) -> None:
        self.dataset = MapDataset(url)
        self.kept = hvd.elastic.ElasticSampler(self.dataset, shuffle=True, seed=3)

    def epoch(self, state: Any) -> Iterable[dict[str, Any]]:
        """Return the remaining batches of the epoch."""
        return torch.utils.data.DataLoader(self.dataset, batch_size=BATCH_SIZE, sampler=state.kept)

    def trained(self, state: Any) -> None:
        """Report the batch to the sampler, which counts it for all ranks."""
        state.kept.record_batch(state.step, BATCH_SIZE)

    def epoch_done(self, state: Any) -> None:
        """Set the epoch of the sampler."""
        state.kept.set_epoch(state.epoch)


WAYS: dict[str, type[Reader | Sampler]] = {"reader": Reader, "sampler": Sampler, "told-sampler": Sampler}


def main(folder: Path, way: str, every: int, doomed: str) -> None:
    """Train until all epochs are done, while workers come and go."""
    hosts = dict(HOSTS_AFTER_STEP)
    if way == "reader":
        hosts |= LATER_HOSTS | ({} if doomed == "localhost" else {LAST_AFTER_STEP: ["localhost:1"]})
    hvd.init()
    torch.set_num_threads(1)
    feed = WAYS[way](str(folder / "numbered"))
    model = torch.nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, kept=feed.kept, epoch=0, step=0)
    if way == "told-sampler":
        state.register_reset_callbacks([lambda: state.kept.reset()])

    @hvd.elastic.run  # type: ignore[untyped-decorator]
    def train(state: Any) -> None:
        while state.epoch < EPOCHS:
            for batch in feed.epoch(state):
                if state.step == DIES_BEFORE_STEP and os.environ["HOROVOD_HOSTNAME"] == doomed and is_first_of_host():
                    os.kill(os.getpid(), signal.SIGKILL)
                optimizer.zero_grad()
                errors = model(batch["x"]).squeeze(1) - batch["y"]
                (errors.square().sum() / BATCH_SIZE).backward()  # correct for a batch without rows, too
                optimizer.step()
                feed.trained(state)
                state.step += 1
                write_down(folder, state, batch["id"].tolist())
                if state.step % every == 0:
                    state.commit()
                if state.step in hosts:
                    change_hosts(folder, state, hosts[state.step])
            state.epoch += 1
            feed.epoch_done(state)

    train(state)
    print(f"done after {state.step} steps", flush=True)


def write_down(folder: Path, state: Any, ids: list[int]) -> None:
    """Append one line in a single write, so that it is complete or missing."""
    here = {"epoch": state.epoch, "step": state.step, "rank": hvd.rank(), "ranks": hvd.size(), "time": time.time()}
    line = here | {"ids": ids}
    with (folder / f"trained-{os.getpid()}.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")


def is_first_of_host() -> bool:
    """Return whether this worker is the first on its host; on the host of rank 0, that is rank 0."""
    return int(hvd.local_rank()) == 0


def change_hosts(folder: Path, state: Any, hosts: Sequence[str]) -> None:
    """Change the hosts, and wait until Horovod notifies all ranks, which interrupts the loop."""
    if hvd.rank() == 0:
        following = folder / "hosts.following"
        following.write_text("\n".join(hosts) + "\n", encoding="utf-8")
        following.rename(folder / "hosts")
    while True:
        state.check_host_updates()
        time.sleep(0.05)  # Horovod polls the hosts once a second, and has no event in between to wait for


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
