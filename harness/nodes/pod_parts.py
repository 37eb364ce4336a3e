"""Parts of a pod's spec: sources of variables, volumes, probes, hooks."""

from msgspec import field

from seatrial.scheduler.api.wire import Wire


class FieldRef(Wire, frozen=True):
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
    field_ref: FieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None
    resource_field_ref: ResourceRef | None = None


class Variable(Wire, frozen=True):
    name: str = ""
    value: str = ""
    value_from: ValueFrom | None = None


class ObjectRef(Wire, frozen=True):
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
    name: str = ""
    items: tuple[Item, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class SecretSource(Wire, frozen=True):
    secret_name: str = ""
    name: str = ""  # its name in a projected volume
    items: tuple[Item, ...] = ()
    default_mode: int | None = None
    optional: bool = False

    @property
    def called(self) -> str:
        return self.secret_name or self.name


class DownwardSource(Wire, frozen=True):
    items: tuple[Item, ...] = ()
    default_mode: int | None = None


class TokenSource(Wire, frozen=True):
    audience: str = ""
    expiration_seconds: int = 3600
    path: str = ""


class Projection(Wire, frozen=True):
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None
    downward_api: DownwardSource | None = field(default=None, name="downwardAPI")
    service_account_token: TokenSource | None = None


class ProjectedSource(Wire, frozen=True):
    sources: tuple[Projection, ...] = ()
    default_mode: int | None = None


class HostPath(Wire, frozen=True):
    path: str = ""
    type: str = ""


class EmptyDir(Wire, frozen=True):
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
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    read_only: bool = False


# -- probes and hooks -------------------------------------------------------------------------------------------------


class ExecAction(Wire, frozen=True):
    command: tuple[str, ...] = ()


class Header(Wire, frozen=True):
    name: str = ""
    value: str = ""


class HttpAction(Wire, frozen=True):
    port: int | str = 0
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[Header, ...] = ()


class TcpAction(Wire, frozen=True):
    port: int | str = 0
    host: str = ""


class SleepAction(Wire, frozen=True):
    seconds: int = 0


class GrpcAction(Wire, frozen=True):
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
    post_start: Handler | None = None
    pre_stop: Handler | None = None


class Port(Wire, frozen=True):
    name: str = ""
    container_port: int = 0
