"""The subresource `scale`: read, replaced, patched and applied, always as a Scale of autoscaling/v1."""

from dataclasses import replace

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.admission.chain import Admission
from seatrial.harness.apiserver.request.options import write_of
from seatrial.harness.apiserver.request.request import RequestContext, Target, check_applied, check_patch_options
from seatrial.harness.apiserver.storage.store import Item, Object
from seatrial.harness.apiserver.verbs.objects import PATCHES, Objects
from seatrial.harness.apiserver.verbs.subresources import (
    check_put_scale,
    checked_scale,
    patched_scale,
    rescaled,
    scale_config,
    scale_of,
)
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON_PATCH

_KIND = ("autoscaling", "v1", "Scale")


def respond_scale(
    objects: Objects, admission: Admission, target: Target, item: Item, context: RequestContext
) -> Object:
    """Carry out a request for the scale of `item`. Returns the Scale of the object as it is afterwards.

    Raises:
        ApiStatusError: the method or the media type is not supported, or the Scale is refused.
    """
    resource, method = target.resource, context.request.method
    scale = scale_of(resource, item)
    if method == "PUT":
        scale = context.body(resource, kind="Scale", api_version="autoscaling/v1")
        check_put_scale(scale, target.name)
    elif method == "PATCH":
        kind = context.request.content_type.partition(";")[0].strip()
        if kind not in PATCHES:
            raise errors.unsupported_media(PATCHES)
        check_patch_options(context.query, kind)
        if kind == APPLY_PATCH:
            return _apply(objects, admission, target, item, context)
        options = context.options()
        patch = context.decoded(any_type=kind == JSON_PATCH)
        scale = patched_scale(scale, kind, patch, options.field_validation, context.warnings)
    elif method != "GET":
        raise errors.method_not_allowed()
    if method != "GET":
        options = replace(context.options(), webhooks_done=True)
        write = write_of("UPDATE", resource, target.key, options, subresource="scale", kind=_KIND)
        scale = admission.scaled(write, scale, scale_of(resource, item))
        body = rescaled(resource, item, scale)
        item = objects.update(resource, target.key, body, options, subresource="scale")
    return scale_of(resource, item)


def _apply(objects: Objects, admission: Admission, target: Target, item: Item, context: RequestContext) -> Object:
    """Apply a Scale: the manager owns the number of replicas of the object."""
    resource = target.resource
    scale = check_applied(context.decoded(yaml_too=True, any_type=True), "autoscaling/v1", "Scale")
    options = replace(context.options(), webhooks_done=True)
    write = write_of("UPDATE", resource, target.key, options, subresource="scale", kind=_KIND)
    amounts = admission.scaled(write, checked_scale(scale), scale_of(resource, item))
    config = scale_config(resource, item, amounts)
    item, _ = objects.patch(resource, target.key, APPLY_PATCH, config, options, "scale")
    return scale_of(resource, item)
