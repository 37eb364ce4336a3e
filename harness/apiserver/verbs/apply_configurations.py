"""Configurations of server-side apply, checked before they are merged."""

from typing import Any

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.patching.apply import first_undeclared
from seatrial.harness.apiserver.request.options import Options
from seatrial.harness.apiserver.request.request import check_kind
from seatrial.harness.apiserver.schemas.shapes import conform, report_unknown_fields
from seatrial.harness.apiserver.storage.store import Key, Object
from seatrial.harness.apiserver.verbs.field_owners import schema_of


def configuration_of(resource: Resource, key: Key, config: Any, options: Options) -> Object:
    """The configuration in the shape of its kind, with metadata.

    Raises:
        ApiStatusError: it is not one of the object of the URL, or has fields that the kind does not have.
    """
    if not isinstance(config, dict):
        raise errors.bad_request("an apply patch must be an object")
    check_kind(resource, config)
    _check_declared(resource, config)
    custom = resource.custom is not None
    config, unknown = conform(resource.api_version, resource.kind, config, custom=custom)
    if unknown:
        report_unknown_fields(resource.kind, resource.version, unknown, options.field_validation, options.warnings)
    config.setdefault("apiVersion", resource.api_version)
    config.setdefault("kind", resource.kind)
    metadata = config.setdefault("metadata", {})
    if metadata.get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    if metadata.get("name") not in {None, "", key[1]}:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({key[1]})"
        )
    return config


def _check_declared(resource: Resource, config: Object) -> None:
    """
    Raises:
        ApiStatusError: 400, a field that is not in the schema of the kind (the message is upstream's).
    """
    schema = schema_of(resource)
    path = first_undeclared(config, schema) if schema is not None else ""
    if path:
        metadata = config.get("metadata")
        of: Object = metadata if isinstance(metadata, dict) else {}
        group, _, version = resource.api_version.rpartition("/")
        raise errors.bad_request(
            f"failed to create typed patch object ({of.get('namespace') or ''}/{of.get('name') or ''};"
            f" {group}/{version}, Kind={resource.kind}): {path}: field not declared in schema"
        )
