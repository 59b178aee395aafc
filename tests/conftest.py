"""What holds for every test."""

import signal


def pytest_configure():
    # A shell's background job ignores Ctrl-C, and so would every process that a test starts to interrupt it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
