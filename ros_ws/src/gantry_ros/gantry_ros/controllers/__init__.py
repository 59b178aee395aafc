"""Arms behind the controllers of ros2_control, started, watched and stopped by Gantry."""
