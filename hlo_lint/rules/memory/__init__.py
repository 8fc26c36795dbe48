"""Which memory values share: what buffer assignment decided, against what instructions declare."""
