"""The language server: answers of an editor's questions about HLO that is open in it.

`texts` counts positions as the client does; `documents` reads each version of a text once;
`hover`, `hints`, `tokens`, `outline`, `renaming`, `checking` and `fixing` answer from that; `app`
is the server itself.
"""
