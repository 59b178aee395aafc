"""Journals on disk: the spool of an actor, and the journal of the learner."""
