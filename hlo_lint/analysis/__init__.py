"""Questions about a module that more than one rule asks."""
