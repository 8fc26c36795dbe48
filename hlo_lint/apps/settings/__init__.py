"""Settings: what may be set, where it is read from, and what a file and a command line make of it.

`keys` declares what there is; the reader, the JSON Schema and the table in the docs come from it.
"""
