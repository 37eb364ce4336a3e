"""Dialects: what one asks of any scheduler, in the words of each project.

A dialect is one module with one class. docs/scoreboard.md says how to write one.
"""
