"""Step 6 of a command's way: structured records, for now to Python's logging."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringfence.model.record import Record

LOGGER = "ringfence.ledger"


class LoggingRecorder:
    """Writes each record to the logger `ringfence.ledger`; its fields are in `record.ringfence`."""

    def record(self, record: Record) -> None:
        """Log one record."""
        # Where nobody has imported logging, nobody has a handler, and importing it takes 16 ms.
        logging = sys.modules.get("logging")
        if logging is None:
            return
        verdict = record.details.get("verdict") or record.details.get("exit_code")
        logging.getLogger(LOGGER).info(
            "%s session=%s %s", record.event, record.session, verdict, extra={"ringfence": record.as_dict()}
        )
