"""A Unitree robot that is none: MuJoCo behind the real robot's DDS topics, strict about commands."""
