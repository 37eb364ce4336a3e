"""Subjects: starting, checking and stopping the scheduler under test, and the descheduler and manager beside it."""
