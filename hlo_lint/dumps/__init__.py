"""Dump directories of `XLA_FLAGS=--xla_dump_to=DIR`: names, pipelines, passes run and to run."""
