"""The attributes after an instruction's operands, as typed values read on demand.

`split_attributes` finds the values; `read_attribute` reads a value by recursive descent over its
tokens. The grammars specify the syntax, and tests compare the readers with them.

| | |
|---|---|
| `splitting` | the position of each value |
| `cursor` | the tokens of a value |
| `reading` | the reader of each name |
| `plain` | numbers, words, names, ranges, paddings, aliases |
| `devices`, `sharding` | meshes, groups of replicas, shardings |
| `windows` | windows, dimensions of convolutions, sparsity, scales |
| `shapes`, `origin`, `metadata`, `configuration` | layouts of an entry, sources, JSON |
"""
