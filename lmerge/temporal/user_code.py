"""What users' code raises: its own errors, whatever their class, but for Ctrl-C.

Called wherever a plan calls functions and modules of users, or imports them. ``SystemExit`` of a function would end the
process as if its work were done; so it is an error of the function as any other exception is.
"""

from __future__ import annotations

import signal
import threading


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is Ctrl-C, which ends the program and is not the fault of the code that it meets.

    Python raises it in the main thread, where no other handler takes the signal. A replica has one that raises nothing.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
