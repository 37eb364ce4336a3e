"""Rules about the values of built-in kinds, with kube-apiserver's sentences.

Here: pure checks of an object, and of an update against the object before it. Not here: types of fields (`schemas`),
names and field errors (`names`, `field_errors`: other packages need them), checks that read the store (`admission`).
"""
