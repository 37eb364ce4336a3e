"""Claims, volumes and storage classes: the fields of core/v1 and storage.k8s.io/v1 that scheduling reads."""

from msgspec import field

from seatrial.scheduler.api.core import NodeSelector
from seatrial.scheduler.api.wire import ObjectMeta, Wire

IMMEDIATE, WAIT_FOR_FIRST_CONSUMER = "Immediate", "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


class ClaimSpec(Wire, frozen=True):
    access_modes: tuple[str, ...] = ()
    volume_name: str = ""
    storage_class_name: str = ""


class ClaimStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ObjectReference(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class CsiSource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(Wire, frozen=True):
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None


class PersistentVolume(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeSpec = VolumeSpec()


class TopologyRequirement(Wire, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Wire, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = IMMEDIATE
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class CsiDriverLimit(Wire, frozen=True):
    count: int | None = None


class CsiDriver(Wire, frozen=True):
    name: str = ""
    node_id: str = field(default="", name="nodeID")
    allocatable: CsiDriverLimit | None = None


class CsiNodeSpec(Wire, frozen=True):
    drivers: tuple[CsiDriver, ...] = ()


class CsiNode(Wire, frozen=True):
    """The CSI drivers of a node; named like the node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()
