"""Walking: velocity tracking on flat and rough ground."""
