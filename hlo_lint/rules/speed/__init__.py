"""What costs time: data that is moved without need, or could lie so that nothing moves."""
