"""The signals by which a batch system, a terminal or a user asks a program to end."""

import signal

ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)
