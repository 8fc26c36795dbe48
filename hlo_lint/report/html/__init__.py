"""A report as one HTML page that needs nothing else: no network, no other file.

| | |
|---|---|
| `collect` | everything that the page holds, as data |
| `detail` | what opening a finding shows |
| `timeline` | the passes of a module, with the lives of its findings |
| `pass_diff` | what a pass changed, line by line |
| `excerpt` | HLO before and after a pass, side by side |
| `neighbourhood` | the instructions around one, and where a drawing puts them |
| `dimensions` | which dimensions a reshape or a transpose moves in memory |
| `preview` | a fix as a difference of lines |
| `visible` | text of a dump, with everything in it to be seen |
| `page` | the data and the template, made one text |

`page.html`, `page.css` and the scripts beside them are what is put together. Nothing of
a dump gets into the page but as JSON in an element that no browser runs, every character of it
visible; the script makes text nodes of it, and the page's own policy forbids anything else.
"""
