"""Steps of environments into the replay buffer, by this process or by a fleet of actors."""
