"""Cars whose motor and steering servo hang on a VESC, over its serial port."""
