"""Memory that two instructions of one kernel access at once."""
