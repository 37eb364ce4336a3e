"""A module of this project that has the name of one of seatrial's folders."""


def customers() -> list[str]:
    return ["ada", "grace"]
