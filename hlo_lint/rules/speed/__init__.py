"""Time: data moved without need, or only because of its layout."""
