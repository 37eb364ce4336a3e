"""Simulated and local nodes: the node agent, which does the work of kubelet, device plugins and koordlet.

Here: admission of pods on a node, the life of pods as data (`stages/`) or as processes and containers (`runtimes/`),
Device objects, usage reports, fault scripts, fleet files. Not here: the device plugin for real kubelets
(`deviceplugin`).
"""
