"""The one line of a proxy that cannot start: the first of its log, without a traceback below it, and the last."""

from __future__ import annotations

import atexit
import logging
import sys

logger = logging.getLogger("wiserouter.litellm")

SERVER_LOGGER = "uvicorn.error"
"""The logger to which the server reports a start that failed, with the traceback of its cause."""


def announce_refusal(error: Exception) -> None:
    """Log why the proxy cannot start, keep the server from burying it under a traceback, and repeat it at exit."""
    line = f"wiserouter: the proxy cannot start: {error}"
    logger.critical("%s", line)
    logging.getLogger(SERVER_LOGGER).addFilter(WithoutTraceback(str(error), line))
    atexit.register(_write_last, line)


class WithoutTraceback(logging.Filter):
    """Shortens the records that hold the traceback of an error to one line.

    Parameters
    ----------
    error : str
        The text of the error.
    line : str
        The line.
    """

    def __init__(self, error: str, line: str) -> None:
        super().__init__()
        self._error, self._line = error, line

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, shortened where it holds the error."""
        cause = record.exc_info[1] if record.exc_info else None
        if self._error in record.getMessage() or (cause is not None and self._error in str(cause)):
            record.msg, record.args, record.exc_info, record.exc_text = self._line, (), None, None
        return True


def _write_last(line: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"{line}\n")
