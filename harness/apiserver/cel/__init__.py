"""CEL as kube-apiserver has it: cel-python, with Kubernetes' own types, functions and macros."""
