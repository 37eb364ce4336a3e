"""Cases that apply the examples of Koordinator's release posts."""
