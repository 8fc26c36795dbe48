"""The GPU autotuner: its logs, and a prediction of what another choice would do."""
