"""Messages between actors and the learner: ``corrections.proto`` and the modules that are generated from it."""
