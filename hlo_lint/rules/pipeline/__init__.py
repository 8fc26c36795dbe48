"""Rules about a run as a whole: its passes, their order, crashes, and gaps in the dumps."""
