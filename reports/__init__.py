"""Pages and tables from the files of runs: the sign-off page, comparisons, the matrix, Allure's HTML.

A report is made from a run's folder alone (`seatrial.harness.results`), so it can be made again later.
"""
