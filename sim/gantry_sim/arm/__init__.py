"""What a person does with arms: demonstrations, cloning, learning on top of it, scores, bundles and films."""
