"""Changes of decoded JSON objects: patches, server-side apply and `managedFields`.

Here: JSON Patch, merge patch, strategic merge patch, sets of fields, who owns which field. All functions are pure; they
use neither the store nor requests. Not here: defaults, validation and conflicts of versions of a patched object.
"""
