"""Dump directories of `XLA_FLAGS=--xla_dump_to=DIR`: files, names, compilations, passes."""
