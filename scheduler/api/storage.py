"""Claims, volumes and storage classes: the fields of core/v1 and storage.k8s.io/v1 that scheduling reads."""

from msgspec import field

from seatrial.scheduler.api.core import NodeSelector
from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, ResourceList, Wire

IMMEDIATE, WAIT_FOR_FIRST_CONSUMER = "Immediate", "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
FILESYSTEM = "Filesystem"
AVAILABLE = "Available"  # phase of a volume that no claim has
SELECTED_NODE = "volume.kubernetes.io/selected-node"  # on a claim: where its volume is to be provisioned
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"  # on a claim: the controller has bound it to `spec.volumeName`
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"  # on a volume: its claimRef may be taken away again


class ClaimResources(Wire, frozen=True):
    """How much storage a claim asks for."""

    requests: ResourceList = {}


class ClaimSpec(Wire, frozen=True):
    """What a claim asks for."""

    access_modes: tuple[str, ...] = ()
    volume_name: str = ""
    storage_class_name: str = ""
    volume_mode: str = FILESYSTEM
    resources: ClaimResources = ClaimResources()
    selector: LabelSelector | None = None


class ClaimStatus(Wire, frozen=True):
    """The phase of a claim."""

    phase: str = ""


class PersistentVolumeClaim(Wire, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class ObjectReference(Wire, frozen=True):
    """A reference to an object of another kind."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Wire, frozen=True):
    """The nodes from which a volume can be used."""

    required: NodeSelector | None = None


class CsiSource(Wire, frozen=True):
    """The CSI driver of a volume, and the driver's name for the volume."""

    driver: str = ""
    volume_handle: str = ""


class Disk(Wire, frozen=True):
    """A disk of an in-tree plugin; each plugin has one of these names."""

    volume_id: str = field(default="", name="volumeID")
    pd_name: str = ""
    disk_uri: str = field(default="", name="diskURI")


class VolumeSpec(Wire, frozen=True):
    """A volume's spec. The disks of in-tree plugins are those that a CSI driver attaches (CSI migration)."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    aws_elastic_block_store: Disk | None = None
    gce_persistent_disk: Disk | None = None
    azure_disk: Disk | None = None
    cinder: Disk | None = None
    portworx_volume: Disk | None = None
    capacity: ResourceList = {}
    volume_mode: str = FILESYSTEM


class VolumeStatus(Wire, frozen=True):
    """The phase of a volume."""

    phase: str = ""


class PersistentVolume(Wire, frozen=True):
    """A PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


class TopologyRequirement(Wire, frozen=True):
    """Values of a node's label that a storage class allows."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Wire, frozen=True):
    """Requirements that must all hold."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(Wire, frozen=True):
    """A StorageClass."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = IMMEDIATE
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class CsiDriverLimit(Wire, frozen=True):
    """How many volumes of a driver a node can attach; None: no limit."""

    count: int | None = None


class CsiDriver(Wire, frozen=True):
    """A CSI driver on one node."""

    name: str = ""
    node_id: str = field(default="", name="nodeID")
    allocatable: CsiDriverLimit | None = None


class CsiNodeSpec(Wire, frozen=True):
    """The CSI drivers of a node."""

    drivers: tuple[CsiDriver, ...] = ()


class AttachedSource(Wire, frozen=True):
    """What a VolumeAttachment attaches."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Wire, frozen=True):
    """The CSI driver, the volume and the node of a VolumeAttachment."""

    attacher: str = ""
    source: AttachedSource = AttachedSource()
    node_name: str = ""


class VolumeAttachment(Wire, frozen=True):
    """A VolumeAttachment: the volume is attached to the node, or is to be."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class CsiNode(Wire, frozen=True):
    """The CSI drivers of a node; named like the node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()
