"""Gangs: pods that are placed together or not at all, as Koordinator's Coscheduling."""
