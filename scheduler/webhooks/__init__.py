"""Koordinator's admission webhook for pods, limited to device requests."""
