"""Autotuning: kernels that tune on the program's own buffers, and backends that may change."""
