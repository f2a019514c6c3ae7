"""Are simulated accelerators kept busy? MLPerf Storage's dlio-benchmark, with petastore and with its own readers."""
