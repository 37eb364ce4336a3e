"""Compares the embedded API server with another one, kube-apiserver above all: the same requests, the same answers."""
