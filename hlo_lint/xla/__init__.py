"""XLA itself, in child processes: it may abort, hang, or take all memory.

A single server (`server`) runs under any interpreter with jaxlib, calls the requested functions,
and answers in a single protocol. `child` starts it, `limits` bounds it.
"""
