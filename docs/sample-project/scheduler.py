"""A module of this project that has the name of one of seatrial's folders."""


def next_run(hour: int) -> int:
    return (hour + 6) % 24
