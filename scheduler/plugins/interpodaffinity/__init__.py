"""Pods that want to be near other pods, or far from them, as upstream has it."""
