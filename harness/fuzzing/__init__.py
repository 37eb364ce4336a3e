"""Random inputs for everything that reads data of users: the API server, and files. `seatrial fuzz` runs it."""
