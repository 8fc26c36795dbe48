"""What `XLA_FLAGS=--xla_dump_to=DIR` leaves behind: file names, pipelines, what ran and what will."""
