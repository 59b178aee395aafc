"""Arms whose DM motors (Damiao) hang on one CAN bus, such as I2RT's YAM."""
