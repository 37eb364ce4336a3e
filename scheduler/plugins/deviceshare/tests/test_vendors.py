"""Annotations for vendors' device plugins: DEV-E15, and refusals."""

import pytest

from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY
from seatrial.scheduler.plugins.deviceshare.shares import Share
from seatrial.scheduler.plugins.deviceshare.vendors import Adapted, Grant, RefusedError, adapt, minors

MIB = 1 << 20


def card(minor: int, core: int = 100, mib: int = 24 << 10, template: str = "") -> Share:
    amounts = ((GPU_CORE, core), (GPU_MEMORY, mib * MIB)) if core else ((GPU_MEMORY, mib * MIB),)
    return Share("gpu", minor, amounts, template=template)


def grant(*cards: Share, model: str = "", shared: bool = True) -> Grant:
    return Grant(cards, [f"GPU-{card.minor}" for card in cards], model, shared, 12345)


def test_minors_in_the_order_of_choice() -> None:
    assert minors((card(1), Share("rdma", 3, ()), card(0))) == "1,0"


@pytest.mark.parametrize(
    ("vendor", "grant", "want"),
    [
        pytest.param(
            "huawei",
            grant(card(0), card(1), shared=False),
            Adapted({"predicate-time": "12345", "huawei.com/npu-core": "0,1"}),
            id="whole-npus",
        ),
        pytest.param(
            "huawei",
            grant(card(0), card(1), model="Ascend-310P3-300I-DUO", shared=False),
            Adapted({"predicate-time": "12345", "huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1"}),
            id="two-chips",
        ),
        pytest.param(
            "huawei",
            grant(card(0, template="vir02")),
            Adapted({"predicate-time": "12345", "huawei.com/npu-core": "0-vir02"}),
            id="a-virtual-npu",
        ),
        pytest.param(
            "cambricon",
            grant(card(0, 5, 1024)),
            Adapted(
                {"CAMBRICON_DSMLU_ASSIGHED": "false", "CAMBRICON_DSMLU_PROFILE": "0_5_4"}, "cambricon.com/dsmlu.lock"
            ),
            id="a-slice-of-an-mlu",
        ),
        pytest.param("cambricon", grant(card(0), card(1), shared=False), Adapted(), id="whole-mlus"),
        pytest.param(
            "metax",
            grant(card(0, 5, 1024), card(1, 5, 1024)),
            Adapted(
                {
                    "metax-tech.com/gpu-devices-allocated": (
                        '[[{"uuid":"GPU-0","compute":5,"vRam":1024},{"uuid":"GPU-1","compute":5,"vRam":1024}]]'
                    )
                },
                "hami.io/mutex.lock",
            ),
            id="slices-of-metax-cards",
        ),
        pytest.param("nvidia", grant(card(0)), Adapted(), id="others-need-no-more"),
        pytest.param("amd", grant(card(0), shared=False), Adapted(), id="amd-s-plugin-reads-nothing"),
        pytest.param("", grant(card(0)), Adapted(), id="nobodys-cards"),
    ],
)
def test_annotations_of_each_vendor(vendor: str, grant: Grant, want: Adapted) -> None:
    assert adapt(vendor, grant) == want


@pytest.mark.parametrize(
    ("vendor", "grant", "want"),
    [
        ("cambricon", grant(card(0, 5), card(1, 5)), "multiple gpu share is not supported on device side"),
        ("cambricon", grant(card(0, 0)), "gpu core resource is required"),
        ("cambricon", grant(card(0, 5, 255)), "gpu memory must not be less than 268435456 bytes"),
        ("metax", grant(card(0, 0)), "gpu core resource is required"),
        ("metax", grant(card(0, 5, 0)), "gpu memory must not be less than 1048576 bytes"),
    ],
)
def test_requests_a_vendor_refuses(vendor: str, grant: Grant, want: str) -> None:
    with pytest.raises(RefusedError) as caught:
        adapt(vendor, grant)
    assert str(caught.value) == want
