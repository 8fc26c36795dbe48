"""What `XLA_FLAGS=--xla_dump_to=DIR` leaves: file names, pipelines, what ran and what will run."""
