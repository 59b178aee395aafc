"""Teachers that see images, state and an instruction and answer with chunks: policy servers, bundles, LeRobot."""
