"""XLA's own parser as the oracle: what it reads out of a text, as values to compare with ours."""
