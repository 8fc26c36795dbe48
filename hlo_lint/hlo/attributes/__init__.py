"""The attributes after an instruction's operands, split and read on demand.

`split_attributes` says where each value stands; `read_attribute` says what it means, by one
recursive descent over the tokens of the value. The grammars specify the syntax, and tests hold the
readers to them.

| | |
|---|---|
| `splitting` | where each value stands |
| `cursor` | the tokens of a value |
| `reading` | which reader a name has |
| `plain` | numbers, words, names, ranges, paddings, aliases |
| `devices`, `sharding` | meshes, groups of replicas, shardings |
| `windows` | windows, dimensions of convolutions, sparsity, scales |
| `shapes`, `origin`, `metadata`, `configuration` | layouts of an entry, sources, JSON |
"""
