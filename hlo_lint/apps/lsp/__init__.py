"""The language server: what an editor asks about HLO that is open in it, saved or not.

`texts` counts as the client counts, `words` says what each word of a statement is, `documents` read
a text once for each version and say what stands where; `hover`, `hints`, `tokens`, `outline`,
`renaming`, `checking` and `fixing` answer from that, and `app` is the server itself.
"""
