"""The objects that every cluster starts with: roles, bindings, flow schemas, APIServices, the Service of the API."""
