"""Settings: keys, files, effect on a run.

`keys` declares them; the reader, the JSON Schema and the table in the docs come from it.
"""
