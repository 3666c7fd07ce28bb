"""Benchmarks: `make bench` runs each `bench_*.py`, which prints one JSON object with its baseline."""
