"""Cases about usage reports, and about scheduling by them."""
