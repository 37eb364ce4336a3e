"""Arguments of the plugin Coscheduling."""

import re

from seatrial.scheduler.api.durations import required_duration
from seatrial.scheduler.api.podgroup import MatchPolicy
from seatrial.scheduler.framework.extension_points import Args

DEFAULT_TIMEOUT = 600.0  # seconds


class CoschedulingArgs(Args, frozen=True):
    """`defaultTimeout` is a duration as Go writes it, or a number of seconds."""

    default_timeout: str | float = DEFAULT_TIMEOUT
    controller_workers: int = 1  # accepted; the controller needs no threads
    skip_check_schedule_cycle: bool = False  # deprecated upstream, without effect
    enable_preemption: bool = False
    aware_network_topology: bool | None = None  # unset: on; upstream's default is off
    default_match_policy: str = MatchPolicy.ONCE_SATISFIED.value

    @property
    def timeout(self) -> float:
        """Seconds that members wait at Permit by default."""
        if not isinstance(self.default_timeout, str):
            return float(self.default_timeout)
        return required_duration(self.default_timeout)

    @property
    def match_policy(self) -> MatchPolicy:
        return MatchPolicy(self.default_match_policy)

    @property
    def topology(self) -> bool:
        """Whether gangs are placed by network topology. Off: their annotations about it are ignored (GANG-D6)."""
        return self.aware_network_topology is not False

    def check(self) -> None:
        try:
            timeout = self.timeout
        except ValueError as error:
            raise ValueError(f"defaultTimeout: {error}") from None
        if timeout < 0:
            raise ValueError(
                f"coeSchedulingArgs DefaultTimeoutSeconds invalid: expected at least 0, found {self.default_timeout}"
            )
        if self.controller_workers < 1:
            raise ValueError(
                f"coeSchedulingArgs ControllerWorkers invalid: expected at least 1, found {self.controller_workers}"
            )
        if not re.fullmatch("|".join(MatchPolicy), self.default_match_policy):
            raise ValueError(
                f"defaultMatchPolicy: expected one of {', '.join(MatchPolicy)}, found {self.default_match_policy!r}"
            )
