"""An embedded Kubernetes API server: one object store, two transports (HTTPS and in process).

Packages from the top down; a package imports only packages below it (import contract in pyproject.toml):

- `assembly`, `transport`: build a server with controllers; carry requests to it.
- `server`: routes a request to a verb and encodes the response.
- `controllers`: what kube-controller-manager does.
- `verbs`: create, update, patch, delete, get, list, watch, subresources.
- `request`, `printers`: parsed requests; tables for kubectl.
- `admission`, `validation`, `defaults`, `webhooks`: what happens to an object before it is stored.
- `access`, `streams`: identities and RBAC; protocols of exec, attach and portforward.
- `storage`: objects, revisions, selectors, pages, watches.
- `discovery`, `patching`: served kinds; patches and `managedFields`.
- `schemas`: types of fields, built-in and custom.
- `cel`, `protobuf`: expressions; bodies of Go clients.
- `names`, `field_errors`, `errors`: rules of names, causes and `Status` errors.
"""
