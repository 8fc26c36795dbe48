"""XLA itself, in child processes: it may abort, hang, or take all memory.

One server (`server`) runs under any interpreter that has jaxlib, calls the functions that it is
asked for, and answers in one protocol. `child` starts it, `limits` bounds it.
"""
