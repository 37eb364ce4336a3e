"""Arguments of the search for victims in a configuration file, of DefaultPreemption and of Reservation."""

from seatrial.scheduler.framework.extension_points import Args


class CandidateNodesArgs(Args, frozen=True):
    """How many candidate nodes end the search: a share of the nodes in percent, and at least an absolute number."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def check(self) -> None:
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            value = self.min_candidate_nodes_percentage
            raise ValueError(f"minCandidateNodesPercentage: expected 0 to 100, found {value}")
        if self.min_candidate_nodes_absolute < 0:
            value = self.min_candidate_nodes_absolute
            raise ValueError(f"minCandidateNodesAbsolute: expected 0 or more, found {value}")
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError("minCandidateNodesPercentage, minCandidateNodesAbsolute: both are 0; one must be more")


class DefaultPreemptionArgs(CandidateNodesArgs, frozen=True):
    """Arguments of DefaultPreemption."""
