"""The ``gantry`` command: a frame that starts what installed packages register as sub-commands."""
