"""A module as the values that it computes: no layouts, no fusions, no copies, no schedule.

`lower` makes a graph of values from a module, `emit` writes it as HLO that XLA:CPU runs. Equal
values are one node, also those of two modules that one `Nodes` has made: two modules whose results
are the same nodes compute the same, and need not run.
"""
