"""Parts of a pod's spec: sources of variables, volumes, probes, hooks."""

from msgspec import field

from seatrial.scheduler.api.wire import Wire


class FieldRef(Wire, frozen=True):
    """A field of the pod (`fieldRef`)."""

    field_path: str = ""


class KeyRef(Wire, frozen=True):
    """A key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class ResourceRef(Wire, frozen=True):
    """An amount of a container's resources, as in `limits.cpu`; in units of `divisor`, rounded up."""

    resource: str = ""
    container_name: str = ""
    divisor: str | int = "1"


class ValueFrom(Wire, frozen=True):
    """Where a variable's value comes from."""

    field_ref: FieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None
    resource_field_ref: ResourceRef | None = None


class Variable(Wire, frozen=True):
    """An environment variable, with a value or a source."""

    name: str = ""
    value: str = ""
    value_from: ValueFrom | None = None


class ObjectRef(Wire, frozen=True):
    """A ConfigMap or Secret all of whose keys become variables (`envFrom`)."""

    name: str = ""
    optional: bool = False


class EnvFrom(Wire, frozen=True):
    """All keys of an object as variables."""

    prefix: str = ""
    config_map_ref: ObjectRef | None = None
    secret_ref: ObjectRef | None = None


# -- volumes ----------------------------------------------------------------------------------------------------------


class Item(Wire, frozen=True):
    """One file of a volume."""

    key: str = ""
    path: str = ""
    mode: int | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceRef | None = None


class ConfigMapSource(Wire, frozen=True):
    """A volume of files with a ConfigMap's values; the mode is of Unix, None means 0644."""

    name: str = ""
    items: tuple[Item, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class SecretSource(Wire, frozen=True):
    """A volume of files with a Secret's values, also as a part of a projected volume."""

    secret_name: str = ""
    name: str = ""  # its name in a projected volume
    items: tuple[Item, ...] = ()
    default_mode: int | None = None
    optional: bool = False

    @property
    def called(self) -> str:
        return self.secret_name or self.name


class DownwardSource(Wire, frozen=True):
    """A volume of files with fields of the pod."""

    items: tuple[Item, ...] = ()
    default_mode: int | None = None


class TokenSource(Wire, frozen=True):
    """A file with a token of the pod's service account, valid for `expiration_seconds`."""

    audience: str = ""
    expiration_seconds: int = 3600
    path: str = ""


class Projection(Wire, frozen=True):
    """One source of a projected volume."""

    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None
    downward_api: DownwardSource | None = field(default=None, name="downwardAPI")
    service_account_token: TokenSource | None = None


class ProjectedSource(Wire, frozen=True):
    """A volume with files of several sources."""

    sources: tuple[Projection, ...] = ()
    default_mode: int | None = None


class HostPath(Wire, frozen=True):
    """A path of the node as a volume."""

    path: str = ""
    type: str = ""


class EmptyDir(Wire, frozen=True):
    """A folder that lives as long as the pod; `medium` Memory: a tmpfs."""

    medium: str = ""


class Volume(Wire, frozen=True):
    """One volume. Sources that need a storage driver are not supported."""

    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None
    downward_api: DownwardSource | None = field(default=None, name="downwardAPI")
    projected: ProjectedSource | None = None

    def parts(self) -> tuple[Projection, ...]:
        """The sources of its files; none for emptyDir and hostPath."""
        if self.projected is not None:
            return self.projected.sources
        part = Projection(self.config_map, self.secret, self.downward_api)
        return (part,) if part != Projection() else ()


class VolumeMount(Wire, frozen=True):
    """Where a container sees a volume."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    read_only: bool = False


# -- probes and hooks -------------------------------------------------------------------------------------------------


class ExecAction(Wire, frozen=True):
    """A command that runs in the container."""

    command: tuple[str, ...] = ()


class Header(Wire, frozen=True):
    """A header of an HTTP request."""

    name: str = ""
    value: str = ""


class HttpAction(Wire, frozen=True):
    """A GET request; the port is a number or the name of one of the container's ports."""

    port: int | str = 0
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[Header, ...] = ()


class TcpAction(Wire, frozen=True):
    """A connection to a port."""

    port: int | str = 0
    host: str = ""


class SleepAction(Wire, frozen=True):
    """A pause before the container is stopped."""

    seconds: int = 0


class GrpcAction(Wire, frozen=True):
    """A call of gRPC's health service."""

    port: int = 0
    service: str = ""


class Handler(Wire, frozen=True):
    """An action of a probe or hook: a command, an HTTP request or a connection."""

    exec: ExecAction | None = None
    http_get: HttpAction | None = None
    tcp_socket: TcpAction | None = None
    sleep: SleepAction | None = None
    grpc: GrpcAction | None = None


class Probe(Handler, frozen=True):
    """A probe. Times are in seconds; thresholds count consecutive results."""

    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Lifecycle(Wire, frozen=True):
    """What runs after a container's start and before its end."""

    post_start: Handler | None = None
    pre_stop: Handler | None = None


class Port(Wire, frozen=True):
    """A port of a container, which probes may name."""

    name: str = ""
    container_port: int = 0
