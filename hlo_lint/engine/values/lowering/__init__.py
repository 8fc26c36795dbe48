"""Lower modules to graphs of values, which have no layouts, fusions, copies or schedules.

`lower` makes a graph of values from a module, `emit` writes it as HLO that XLA:CPU runs. Equal
values share a node, also across modules that use the same `Nodes`: two modules whose results are
the same nodes are equal, and need not run.
"""
