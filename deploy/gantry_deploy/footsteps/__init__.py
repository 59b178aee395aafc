"""Foothold-based locomotion: gait timing, foothold search, path selection, body pose and ground forces."""
