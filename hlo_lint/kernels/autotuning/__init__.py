"""The GPU autotuner: its logs, and predictions of the effect of a different choice."""
