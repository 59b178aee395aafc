"""``gantry demo``: from nothing to a policy that walks over ROS 2, and one report about all of it."""
