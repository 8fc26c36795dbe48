"""The engine: it turns dumps into findings, findings into fixed texts."""
