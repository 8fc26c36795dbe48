"""The report as a self-contained HTML page, without network or other files.

| | |
|---|---|
| `collect` | the data of the page |
| `detail` | the details of a finding, with its fix as a difference of lines |
| `timeline` | the passes of a module, with the lives of its findings |
| `pass_diff` | the lines that a pass changed |
| `excerpt` | HLO before and after a pass, side by side |
| `neighbourhood` | the operands and users of an instruction, and their layout in a drawing |
| `dimensions` | the dimensions that a reshape or a transpose moves in memory |
| `module_graph` | the layout of a whole module |
| `visible` | text of a dump with every character visible |
| `page` | the template, filled with the data |
| `compare` | the page of `hlo-lint compare` |

`page.html` is filled with `page.css`, the scripts and the data. Text of a dump is JSON in an
element that browsers do not run, with every character visible. The script makes text nodes of it;
the page's policy forbids anything else.
"""
