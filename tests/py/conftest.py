"""What all suites share."""

import signal

# A shell starts background jobs with SIGINT ignored, and children inherit that: suites send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
