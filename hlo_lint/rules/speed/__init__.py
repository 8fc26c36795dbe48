"""Time: data that is moved without need, or that another layout would leave in place."""
