"""Networks, learners and export."""
