"""Differences between two modules, or between two runs of the compiler over the same program.

| | |
|---|---|
| `normalize` | the value of an attribute, a shape or a literal, independent of its spelling |
| `structural_hash` | a number for each structure: equal numbers, equal graphs, names left out |
| `align` | pairs of matching instructions of two computations |
| `difference` | two modules, computation by computation |
| `bisection` | two runs, pass by pass |
| `run_choices` | several runs, good and bad: the choices that tell them apart |
"""
