"""The scheduling queue: pods that are ready, that back off, that wait for an event, or that a gate holds."""
