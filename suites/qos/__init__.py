"""Colocation: what batch and mid pods may have of a node, how pods become such, how nodes protect the others."""
