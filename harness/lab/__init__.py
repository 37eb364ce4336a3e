"""The lab: which machines and cards there are, who holds which of them, and until when.

inventory.py has the machines, windows.py hours that are kept free, ledger.py who holds what and who waits; all three
are arithmetic. stores.py keeps the ledger in a file or in a Lease, lab.py takes, renews and returns places, hooks.py
runs commands for power and images.
"""
