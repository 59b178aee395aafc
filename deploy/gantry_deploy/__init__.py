"""The runtime: contract, observations, actions, safety, loop, recording, and the ``gantry`` command."""
