"""The language server for HLO texts open in an editor.

`texts` converts positions of the client; `documents` parses each version of a text once; `hover`,
`outline`, `checking` and `fixing` answer requests; `app` is the server.
"""
