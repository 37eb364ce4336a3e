"""Rules of this company's clusters, judged on the scheduler."""

import fixtures
import pytest

from seatrial.testing import Capability, Expect, Trial, node, pod

pytestmark = [pytest.mark.feature("ACME-1"), pytest.mark.needs(Capability.HARDWARE)]


@pytest.mark.case("ACME-001", severity="critical")
@pytest.mark.parametrize("customer", fixtures.customers())
def test_a_customer_gets_a_whole_card(trial: Trial, expect: Expect, customer: str) -> None:
    """A pod of a customer that asks for one card gets exactly one."""
    trial.add(node("n1").cards(2))
    trial.submit(pod(customer).gpus(1))

    bound = expect.running(customer)

    assert len(trial.visible_devices(bound)) == 1


@pytest.mark.case("ACME-002")
def test_a_third_card_is_not_promised(trial: Trial, expect: Expect) -> None:
    """A pod that asks for more cards than a node has stays pending, with the reason."""
    trial.add(node("n1").cards(2))
    trial.submit(pod("big").gpus(3))

    expect.pending("big", saying="Insufficient")
