"""Rules about a run as a whole: the order of its passes, where it died, what its dumps leave out."""
