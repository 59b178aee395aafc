"""Files of a LeRobot dataset on disk: layout, columns, checksums, and resuming after a kill."""
