"""What an object may look like: the schemas of built-in and custom kinds, and the checks of an object against them.

Here: field types from Kubernetes' OpenAPI documents, decoding checks, structural schemas and CEL rules of custom
resources, the CustomResourceDefinitions that ship with the program. Not here: which kinds are served (`discovery`),
rules about values of built-in kinds (`validation`), defaults of built-in kinds (`defaults`).
"""
