"""Koordinator's admission webhook for pods, as far as devices go."""
