"""Messages of seatrial between the master and the workers of a load, beside Locust's own, by the name of each.

Both sides pass files of the folder of their load on: what one machine's processes say to each other by files, machines
say by these messages.
"""

HELLO = "seatrial hello"  # worker: its name, the digest of its source
PLAN = "seatrial plan"  # master: the worker's settings, and the files that they name
REFUSAL = "seatrial refusal"  # master: why the worker cannot take part
READY = "seatrial planned"  # worker: it can take users
GO = "seatrial go"  # master: the seconds from now to time 0 of the load
FILE = "seatrial file"  # worker: the kind of the file (`FORWARDED`) and its content


FORWARDED = ("ready", "progress", "part")
POLL_INTERVAL = 0.02  # seconds between two looks at the folder
