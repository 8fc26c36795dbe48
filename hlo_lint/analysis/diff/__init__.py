"""Differences between two modules, or between two runs of the compiler over one program.

| | |
|---|---|
| `meaning` | what an attribute, a shape, a literal says, however it is spelled |
| `structure` | a number for each structure: equal numbers, equal graphs, names left out |
| `align` | which instruction of one computation is which of the other |
| `difference` | two modules, computation by computation |
| `bisection` | two runs, pass by pass |
"""
