"""Control loop of a node on ROS 2: topics and services of its operator, parameters of its safety."""
