"""Rules about a run as a whole: its passes, their order, where it died, what dumps leave out."""
