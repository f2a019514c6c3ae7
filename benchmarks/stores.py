"""Compare clients for range requests of objects: `python -m benchmarks.stores [--rounds N] [--seconds S]`.

Servers on loopback, in processes of their own, give out a file: to S3's clients as an object, to others as a web page.
A proxy adds 20 ms to each answer. Each client reads random ranges in a process of its own with eight under way, and all
take turns. Then: what becomes of a client in a forked child, at the end of the interpreter while a request hangs, and
where connections are reset. What it costs to have Arrow decode column chunks that lie in memory. Last, an epoch of a
reader by ranges, and by the files that fsspec gives. Prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import mmap
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from petastore.threads import Daemon
from tests.servers.child import child_server

Get = Callable[[int, int], Any]

FILE_BYTES = 64 * 1024 * 1024
SIZES = {"64 KB": 64 * 1024, "1 MB": 1024 * 1024, "8 MB": 8 * 1024 * 1024}
LATENCIES = {"0 ms": 0.0, "20 ms": 0.02}
UNDER_WAY = 8
CLIENTS = ["obstore, S3", "pyarrow, S3", "petastore, S3", "obstore, HTTP", "fsspec, HTTP", "petastore, HTTP"]
KEYS = {"key": "AKIAEXAMPLE", "secret": "hush"}
PATIENCE_S = 10


def client(name: str, url: str) -> Get:
    """What reads a range of the file, given where it begins and its length."""
    return {"obstore": _obstore, "pyarrow": _pyarrow, "fsspec": _fsspec, "petastore": _petastore}[
        name.partition(",")[0]
    ](url, is_s3=name.endswith("S3"))


def _obstore(url: str, *, is_s3: bool) -> Get:
    import obstore
    from obstore.store import HTTPStore, S3Store

    plain: Any = {"allow_http": True}
    store: Any = HTTPStore(f"{url}/bucket", client_options=plain)
    if is_s3:
        store = S3Store(
            "bucket",
            endpoint=url,
            region="us-east-1",
            access_key_id=KEYS["key"],
            secret_access_key=KEYS["secret"],
            client_options=plain,
        )
    return lambda at, length: obstore.get(store, "file.bin", options={"range": (at, at + length)}).bytes()


def _fsspec(url: str, **_: bool) -> Get:
    import fsspec

    store = fsspec.filesystem("http")
    return lambda at, length: store.cat_file(f"{url}/bucket/file.bin", start=at, end=at + length)


def _pyarrow(url: str, **_: bool) -> Get:
    from pyarrow import fs

    store = fs.S3FileSystem(
        access_key=KEYS["key"],
        secret_key=KEYS["secret"],
        endpoint_override=url.partition("//")[2],
        scheme="http",
        region="us-east-1",
    )
    file = store.open_input_file("bucket/file.bin")
    return lambda at, length: file.read_at(length, at)


def _petastore(url: str, *, is_s3: bool) -> Get:
    from petastore.storage.files.location import open_location
    from petastore.storage.ranges.fetch import ByteRange, RangeFetcher

    options: dict[str, Any] = {**KEYS, "endpoint_url": url, "client_kwargs": {"region_name": "us-east-1"}}
    location = open_location(
        "s3://bucket/file.bin" if is_s3 else f"{url}/bucket/file.bin", storage_options=options if is_s3 else None
    )
    fetcher = RangeFetcher(location)
    version = fetcher.version_of("file.bin")
    return lambda at, length: fetcher.fetch("file.bin", version, [ByteRange(at, length)]).read(at, length)


@dataclasses.dataclass(frozen=True)
class Rate:
    """What a client did in a while."""

    requests: int
    bytes: int
    wall_s: float
    cpu_s: float


def rate(get: Get, length: int, seconds: float) -> Rate:
    """Reads ranges with eight under way."""
    until, counts = time.perf_counter() + seconds, [0] * UNDER_WAY

    def work(seed: int) -> None:
        dice = np.random.default_rng(seed)
        while counts[seed] == 0 or time.perf_counter() < until:
            data = get(int(dice.integers(0, FILE_BYTES - length)), length)
            assert memoryview(data).nbytes == length
            counts[seed] += 1

    get(0, length)
    began, cpu = time.perf_counter(), time.process_time()
    threads = [Daemon("work", functools.partial(work, seed)) for seed in range(UNDER_WAY)]  # such as workers are
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = sum(counts)
    return Rate(made, made * length, time.perf_counter() - began, time.process_time() - cpu)


# --- What a child process does, by its name -------------------------------------------------------------------------


def rates(name: str, url: str, seconds: str) -> None:
    """Prints the rates of a client for ranges of each size."""
    get = client(name, url)
    print(json.dumps({size: dataclasses.asdict(rate(get, length, float(seconds))) for size, length in SIZES.items()}))


def forks(name: str, url: str) -> None:
    """Reads in a child that is forked after reading here; prints what came of it."""
    get = client(name, url)
    get(0, 1000)
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            outcome = 0 if memoryview(get(0, 1000)).nbytes == 1000 else 2
        finally:
            os._exit(outcome)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            print({0: "reads", 1: "error"}.get(os.waitstatus_to_exitcode(status), "dies"))
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    print("**hangs**")


def ends(name: str, url: str, hanging: str) -> None:
    """Ends the interpreter while a thread waits for an answer that does not come."""
    get = client(name, url)
    get(0, 1000)
    Path(hanging).touch()  # from now on, the proxy does not answer
    threading.Thread(target=get, args=(0, 1000), daemon=True).start()
    time.sleep(0.5)


def resets(name: str, url: str) -> None:
    """Reads a hundred ranges of a megabyte over a line that resets every tenth of them; prints what came of it."""
    get, wrong, failed = client(name, url), 0, 0
    data = Path(os.environ["STORES_FILE"]).read_bytes()
    for number in range(100):
        try:
            wrong += bytes(get(number * 1000, 1 << 20)) != data[number * 1000 : number * 1000 + (1 << 20)]
        except Exception:  # noqa: BLE001 - each client has its own exceptions
            failed += 1
    print(
        f"{100 - failed - wrong} right"
        + (f", {failed} errors" if failed else "")
        + (f", **{wrong} wrong**" if wrong else "")
    )


# --- The parent -----------------------------------------------------------------------------------------------------


def in_child(verb: str, *arguments: str, limit_s: float = 300, **environment: str) -> tuple[int | None, str]:
    """Exit status and output of one of the functions above, run in a process of its own; None is that it hung."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.stores", "--child", verb, *arguments]
    try:
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            env={**os.environ, "AWS_EC2_METADATA_DISABLED": "true", **environment},
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return ran.returncode, ran.stdout.strip() or ran.stderr.strip()[-300:]


@contextlib.contextmanager
def before(port: int, **faults: float) -> Iterator[str]:
    """A proxy with faults before the server."""
    with child_server("tests.servers.fault_proxy", str(port), json.dumps(faults)) as standing:
        yield f"http://127.0.0.1:{standing}"


def compare_rates(port: int, rounds: int, seconds: float) -> None:
    """Prints the rates of all clients, which take turns."""
    with before(port, latency_s=LATENCIES["20 ms"]) as far:
        places = {"0 ms": f"http://127.0.0.1:{port}", "20 ms": far}
        found: dict[tuple[str, str, str], list[Rate]] = {}
        for _ in range(rounds):
            for latency, url in places.items():
                for name in CLIENTS:
                    status, output = in_child("rates", name, url, str(seconds))
                    assert status == 0, (name, output)
                    for size, one in json.loads(output).items():
                        found.setdefault((latency, size, name), []).append(Rate(**one))
    for latency in places:
        print(f"\n**{latency}.** Requests a second; MB a second; CPU seconds a GB (the lowest and the highest round)\n")
        print("| client | " + " | ".join(f"{size}: req/s | MB/s | CPU s/GB" for size in SIZES) + " |")
        print("| --- |" + " ---: |" * (3 * len(SIZES)))
        for name in CLIENTS:
            cells = [_cell(found[latency, size, name]) for size in SIZES]
            print(f"| {name} | " + " | ".join(cells) + " |")
    print_bounds(found)


def _cell(rates: list[Rate]) -> str:
    requests = statistics.median(one.requests / one.wall_s for one in rates)
    megabytes = statistics.median(one.bytes / one.wall_s / 1e6 for one in rates)
    cpu = [one.cpu_s / (one.bytes / 1e9) for one in rates]
    return f"{requests:,.0f} | {megabytes:,.0f} | {statistics.median(cpu):.2f} ({min(cpu):.2f}–{max(cpu):.2f})"


BOUNDS = (
    ("64 KB", "obstore, S3", "rate", 0.85),
    ("64 KB", "obstore, HTTP", "rate", 0.85),
    ("64 KB", "fsspec, HTTP", "rate", 1.0),
    ("1 MB", "obstore, S3", "CPU", 1.3),
    ("1 MB", "obstore, HTTP", "CPU", 1.3),
)
"""Ranges, other client, and the least rate or the most CPU time in proportion to that client's."""


def print_bounds(found: dict[tuple[str, str, str], list[Rate]]) -> None:
    """Prints petastore's rates and CPU times without latency, in proportion to another client's in the same round."""
    print("\n| ranges | petastore beside | | median (lowest to highest round) | bound | |")
    print("| --- | --- | --- | ---: | ---: | --- |")
    for size, other, what, bound in BOUNDS:
        own = found["0 ms", size, f"petastore, {other.partition(', ')[2]}"]
        pairs = zip(own, found["0 ms", size, other], strict=True)
        if what == "rate":
            ratios = [one.requests / one.wall_s / (two.requests / two.wall_s) for one, two in pairs]
        else:
            ratios = [one.cpu_s / one.bytes / (two.cpu_s / two.bytes) for one, two in pairs]
        median = statistics.median(ratios)
        kept = "kept" if (median >= bound if what == "rate" else median <= bound) else "**not kept**"
        sign = "≥" if what == "rate" else "≤"
        cells = f"{median:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {sign} {bound}"
        print(f"| {size} | {other} | {what} | {cells} | {kept} |", flush=True)


def compare_ways(port: int, file: Path) -> None:
    """Prints what becomes of clients in forks, at the end, and on a line that resets."""
    print("\n| client | in a forked child | at exit, a request hangs | 10 % of connections reset |")
    print("| --- | --- | --- | --- |")
    for name in CLIENTS:
        url = f"http://127.0.0.1:{port}"
        forked = in_child("forks", name, url, limit_s=60)[1].splitlines()[-1:]
        with tempfile.TemporaryDirectory() as folder:
            hanging = Path(folder) / "hanging"
            with child_server("benchmarks.stores", "--child", "hang_when", str(port), str(hanging)) as standing:
                began = time.monotonic()
                status, _ = in_child("ends", name, f"http://127.0.0.1:{standing}", str(hanging), limit_s=30)
                took = time.monotonic() - began
        ended = "**hangs**" if status is None else "ends" if status == 0 else f"**status {status}**"
        with before(port, reset=0.1, seed=3) as far:
            reset = in_child("resets", name, far, STORES_FILE=str(file))[1].splitlines()[-1:]
        print(f"| {name} | {''.join(forked)} | {ended}{f' ({took:.0f} s)' if status == 0 else ''} | {''.join(reset)} |")


def hang_when(port: str, there: str) -> None:
    """A proxy that answers nothing any more once there is a file of some name."""
    from tests.servers.fault_proxy import FaultProxy, Faults
    from tests.servers.range_server import Head, until_input_ends

    class Hanging(FaultProxy):
        def _fault(self, head: Head) -> str:
            self.faults = Faults(hangs=float(Path(there).exists()))
            return super()._fault(head)

    until_input_ends(Hanging(int(port)))


def compare_decoding(rounds: int) -> None:
    """Prints what it costs to decode a row group whose column chunks lie in memory, by each way to hand them over."""
    dice, rows = np.random.default_rng(0), 50_000
    columns: dict[str, Any] = {f"c{number}": dice.integers(0, 1 << 40, rows) for number in range(40)}
    table = pa.table({**columns, "image": pa.array([dice.bytes(300) for _ in range(rows)])})
    sink = pa.BufferOutputStream()
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, sink, row_group_size=rows, **options)
    data = sink.getvalue()
    metadata = pq.read_metadata(pa.BufferReader(data))
    print("\n| row group | file in memory, the limit | file of Python | assembled in a sparse mapping |")
    print("| --- | ---: | ---: | ---: |")
    for what, leaves in (("one column of 40", [3]), ("40 columns", list(range(40))), ("15 MB of images", [40])):
        times: dict[str, list[float]] = {}
        for _ in range(max(rounds, 3) * 7):
            for way, decode in _ways(data, metadata, leaves).items():
                began = time.thread_time()
                decode()
                times.setdefault(way, []).append((time.thread_time() - began) * 1e3)
        cells = [f"{statistics.median(found):.2f} ({min(found):.2f}–{max(found):.2f})" for found in times.values()]
        print(f"| {what}, CPU ms | " + " | ".join(cells) + " |")


def _ways(data: pa.Buffer, metadata: Any, leaves: list[int]) -> dict[str, Callable[[], Any]]:
    from petastore.storage.footers.footer import FooterParser
    from petastore.storage.footers.tails import Tail, footer_in
    from petastore.storage.ranges.fetch import FetchedRanges, in_memory_file
    from petastore.storage.row_groups.fetched_row_group import chunk_ranges
    from petastore.storage.stores.interface import FileVersion

    footer = footer_in(data.to_pybytes(), data.size, "x") or b""
    chunks = chunk_ranges(FooterParser().parse("x", Tail(data.size, footer)), 0, leaves).values()
    pieces = [(one.offset, pa.py_buffer(data.slice(*one).to_pybytes())) for one in chunks]

    def of(source: Any) -> Any:
        reader = pq.ParquetReader()
        reader.open(source, metadata=metadata, pre_buffer=False, page_checksum_verification=True)
        return reader.read_row_group(0, column_indices=leaves, use_threads=False)

    def assembled() -> Any:
        place = mmap.mmap(-1, data.size)
        whole = np.frombuffer(place, np.uint8)
        for at, piece in pieces:
            whole[at : at + piece.size] = np.frombuffer(piece, np.uint8)
        return of(pa.BufferReader(pa.py_buffer(place)))

    return {
        "limit": lambda: of(pa.BufferReader(data)),
        "python": lambda: of(in_memory_file(FetchedRanges(data.size, FileVersion(data.size), pieces))),
        "assembled": assembled,
    }


EPOCH = {
    "one column of 40": ["c7"],
    "three columns": ["c1", "c20", "c39"],
    "40 columns": [f"c{number}" for number in range(40)],
}


def compare_epochs(rounds: int) -> None:
    """Prints what an epoch of a reader takes over a line of 20 ms and 100 MB/s."""
    from tests.servers.fault_proxy import FaultProxy, Faults

    dice, rows = np.random.default_rng(0), 64 * 4000
    table = pa.table({f"c{number}": dice.integers(0, 1 << 40, rows) for number in range(40)})
    print("\n| an epoch of | s | CPU s | requests | bytes, times those of the chunks |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder, child_server("tests.servers.range_server", folder) as port:
        paths = [Path(folder) / f"{number}.parquet" for number in range(8)]
        for number, path in enumerate(paths):
            part = table.slice(number * rows // 8, rows // 8)
            pq.write_table(part, path, row_group_size=4000, compression="none", use_dictionary=False)
        with FaultProxy(port) as proxy:
            urls = [f"{proxy.url}/{path.name}" for path in paths]
            for what, columns in EPOCH.items():
                times: list[tuple[float, ...]] = []
                for _ in range(rounds):
                    proxy.begin(Faults(latency_s=0.02, bytes_per_s=100e6))
                    times.append((*_epoch(urls, columns, rows), proxy.counted.requests, proxy.counted.bytes))
                wall, cpu, requests, read = (statistics.median(values) for values in zip(*times, strict=True))
                share = read / (len(columns) * rows * 8)
                print(f"| {what} | {wall:.2f} | {cpu:.2f} | {requests:.0f} | {share:.2f} |")


def _epoch(urls: list[str], columns: list[str], rows: int) -> tuple[float, float]:
    from petastore import make_batch_reader

    began, cpu = time.perf_counter(), time.process_time()
    with make_batch_reader(urls, schema_fields=columns, num_epochs=1) as reader:
        assert sum(len(batch[0]) for batch in reader) == rows
    return time.perf_counter() - began, time.process_time() - cpu


def main() -> None:
    """Compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rates-only", action="store_true", help="print the rates and their bounds only")
    parser.add_argument("--child", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    if asked.child:
        verbs = {one.__name__: one for one in (rates, forks, ends, resets, hang_when)}
        verbs[asked.child[0]](*asked.child[1:])
        return
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, load {load:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bucket" / "file.bin"
        file.parent.mkdir()
        file.write_bytes(np.random.default_rng(0).bytes(FILE_BYTES))
        with child_server("tests.servers.range_server", folder) as port:
            compare_rates(port, asked.rounds, asked.seconds)
            if asked.rates_only:
                return
            compare_ways(port, file)
    compare_decoding(asked.rounds)
    compare_epochs(asked.rounds)


if __name__ == "__main__":
    main()
