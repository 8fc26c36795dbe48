"""Rules about a run as a whole: its passes, their order, crashes, gaps in the dumps."""
