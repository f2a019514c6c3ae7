"""One of two JAX processes: reads in several modes, and prints the rows or the error of each."""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np

from petastore import make_reader
from petastore.adapters.jax import DataLoader, jax_all_gather
from petastore.errors import PetastoreError


def main() -> None:
    url, address, number, *modes = sys.argv[1:]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, int(number))
    for mode in modes:
        print(json.dumps([mode, outcome_of(mode, url, int(number))]), flush=True)


def outcome_of(mode: str, url: str, number: int) -> Any:
    devices = jax.devices()
    per_process = len(devices) // 2
    if mode == "interleaved":
        devices = [devices[place] for first in range(per_process) for place in (first, first + per_process)]
    if mode == "replicated":  # both processes have all rows and half of the weights
        mesh = jax.sharding.Mesh(np.array(devices).reshape(1, -1), ("data", "model"))
    else:
        mesh = jax.sharding.Mesh(devices, ("data",))
    over_rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    last_batch: Any = mode if mode in ("even", "drop", "pad", "wrap") else "drop"
    shard = {"swapped": (1 - number, 2), "forgotten": (None, None), "replicated": (None, None)}.get(mode, (number, 2))

    total = jax.jit(lambda ids, valid: (ids * valid).sum())
    with make_reader(
        url,
        ["id"],
        cur_shard=shard[0],
        shard_count=shard[1],
        shuffle_rows=True,
        seed=7,
        num_epochs=2,
        last_batch=last_batch,
    ) as reader:
        try:
            if mode not in ("forgotten", "replicated"):
                reader.plan.assert_agreed(jax_all_gather)
            loader = DataLoader(reader, batch_size=8, sharding=over_rows)
        except PetastoreError as problem:
            return str(problem)
        trained, sums = [], []
        for batch in loader:
            valid = batch.get("valid", np.ones(len(batch["id"]), bool))
            sums.append(int(total(batch["id"], valid)))
            here = np.concatenate([np.asarray(part.data) for part in batch["id"].addressable_shards])
            marks = (
                [np.asarray(part.data) for part in valid.addressable_shards]
                if last_batch == "pad"
                else [np.ones(8, bool)]
            )
            trained += here[np.concatenate(marks)].tolist() if mode != "replicated" else here[:8].tolist()
            rows = len(batch["id"])
        return {"trained": trained, "sums": sums, "rows": rows, "steps": len(loader)}


if __name__ == "__main__":
    main()
