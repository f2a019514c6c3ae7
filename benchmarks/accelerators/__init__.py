"""GPU utilization in MLPerf Storage's dlio-benchmark with simulated accelerators: petastore and DLIO's own readers."""
