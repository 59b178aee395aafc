"""Other people's environments: whatever speaks gymnasium, trained and evaluated as Gantry's own arms are."""
