"""Reads an object back after a write whose answer was lost, so that the write may have been carried out."""

from seatrial.scheduler.api.transport import Done, Request, Response
from seatrial.scheduler.client.rest import Rest

FIRST_LOOK, LONGEST_LOOK = 0.1, 5.0  # seconds between two reads; the pause doubles


def unclear(response: Response) -> bool:
    """Whether the response does not say if the write was carried out."""
    return response.code == 0 or response.code >= 500


def read_back(rest: Rest, path: str, shown: Done) -> None:
    """Read the object at `path` until the API server answers with it or with 404, and give that answer to `shown`.

    Until then the caller keeps what the write would assign: devices must not go to another pod, and the watch may hang
    on the same broken connection. After an exception of `shown` the object is read again, too.
    """

    def look(pause: float) -> None:
        def answered(response: Response) -> None:
            if response.ok or response.code == 404:
                with rest.clock.faults.guard("read_back", path):
                    shown(response)
                    return
            look(min(pause * 2, LONGEST_LOOK))

        rest.clock.call_later(pause, lambda: rest.transport.send(Request("GET", path), answered))

    look(FIRST_LOOK)
