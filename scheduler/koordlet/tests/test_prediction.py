"""Worked examples of Koordinator's peak_predictor_test.go, and histograms (E19, PR-1 to PR-9)."""

from pathlib import Path

import pytest

from seatrial.scheduler.koordlet.histogram import CPU_BUCKETS, MEMORY_BUCKETS, Buckets, Histogram, restored
from seatrial.scheduler.koordlet.prediction import Amounts, Models, PodPeak, Prediction, combined, of_classes, of_pods
from seatrial.scheduler.koordlet.samples import Samples

MI, GI = 1 << 20, 1 << 30
POD = PodPeak(Amounts(2000, 2 * GI), Amounts(500, 768 * MI))


@pytest.mark.parametrize(
    ("allocatable", "expected"),
    [
        (Amounts(3000, 3 * GI), Amounts(1450, 2 * GI - 1.1 * 768 * MI)),
        (Amounts(1000, GI), Amounts(450, GI - 1.1 * 768 * MI)),
    ],
)
def test_by_pods(allocatable: Amounts, expected: Amounts) -> None:
    """TestPodReclaimablePredictor: p95 of CPU, p98 of memory, ten percent of margin."""
    assert of_pods([POD], allocatable).reclaimable == pytest.approx(expected)


def test_pods_without_a_model_give_nothing() -> None:
    """GetPeak: 550m, a young pod's request of 1000m, and 500m of a pod without a model."""
    young, failed = PodPeak(Amounts(1000, 0), None), PodPeak(Amounts(500, 0), None)
    prediction = of_pods([POD, young, failed], Amounts(9000, 9 * GI))
    assert prediction.peak.cpu == pytest.approx(2050)
    assert prediction.reclaimable.cpu == pytest.approx(1450)


@pytest.mark.parametrize(
    ("allocatable", "expected"), [(Amounts(9000, 9 * GI), Amounts(200, 512 * MI)), (Amounts(900, GI), Amounts(100, 0))]
)
def test_by_classes(allocatable: Amounts, expected: Amounts) -> None:
    """Test_priorityReclaimablePredictor, without margin."""
    peaks = [Amounts(300, 512 * MI), Amounts(500, GI)]
    assert of_classes(Amounts(1000, 2 * GI), peaks, allocatable, 0).reclaimable == expected


def test_the_more_careful_counts() -> None:
    first, second = (
        Prediction(Amounts(*result), Amounts(*peak)) for result, peak in (((1, 9), (5, 2)), ((3, 4), (4, 8)))
    )
    assert combined(first, second) == Prediction(Amounts(1, 4), Amounts(5, 8))


def test_buckets() -> None:
    """PR-3."""
    small = Buckets(1.0, 2.0, 100.0, 1.0)
    assert [small.start(bucket) for bucket in range(4)] == [0, 1, 3, 7]
    assert [small.of(value) for value in (0, 0.9, 1, 2.9, 3, 6.9, 1e9)] == [0, 0, 1, 1, 2, 2, small.count - 1]


@pytest.mark.parametrize("buckets", [CPU_BUCKETS, MEMORY_BUCKETS], ids=["cpu", "memory"])
def test_a_percentile_is_little_above_the_value(buckets: Buckets) -> None:
    """PR-5: by one bucket at most."""
    histogram = Histogram(buckets)
    assert histogram.percentile(0.95) == 0
    for value in range(1, 101):
        histogram.add(value * buckets.first, 0.0)
    number = histogram.percentile(0.95) / buckets.first
    assert 95 <= number <= 95 * 1.05 + 1


def test_old_samples_count_less() -> None:
    """PR-4: by half in each half-life, also after the weights were scaled."""
    histogram = Histogram(CPU_BUCKETS)
    day = 2 * CPU_BUCKETS.half_life
    for _ in range(10):
        histogram.add(8.0, 0.0)
    histogram.add(1.0, 3 * day)
    assert histogram.percentile(0.5) < 1.1, "ten samples of six half-lives ago weigh less than one"
    histogram.add(2.0, 60 * day)
    assert histogram.percentile(0.01) == pytest.approx(2.0, rel=0.1)
    assert histogram.total == pytest.approx(1.0, rel=0.5)


def test_checkpoints() -> None:
    """PR-6: percentiles stay."""
    histogram = Histogram(CPU_BUCKETS)
    for number in range(100):
        histogram.add(number / 10, number * 60.0)
    again = restored(CPU_BUCKETS, histogram.checkpoint())
    assert [again.percentile(part) for part in (0.1, 0.5, 0.95)] == [histogram.percentile(p) for p in (0.1, 0.5, 0.95)]
    assert again.total == pytest.approx(histogram.total)
    assert restored(CPU_BUCKETS, Histogram(CPU_BUCKETS).checkpoint()).percentile(0.5) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"cpu": 1, "memory": 2}',
        '{"cpu": {"bucketWeights": {"-1": 1}, "totalWeight": 1, "referenceTimestamp": 0}, "memory": {}}',
        '{"cpu": {"bucketWeights": {"99999999": 1}, "totalWeight": 1, "referenceTimestamp": 0}, "memory": {}}',
        '{"cpu": {"bucketWeights": {"1": 1}, "totalWeight": Infinity, "referenceTimestamp": 0}, "memory": {}}',
    ],
)
def test_files_that_are_no_models(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.json").write_text(text)
    assert Models(tmp_path).peak("a") is None
    assert len([record for record in caplog.records if "model left out" in record.message]) == 1


def test_models_are_trained_kept_and_forgotten(tmp_path: Path) -> None:
    """PR-1: by the 90th percentile of a minute; a new process knows what the last one learned."""
    samples, models = Samples(), Models(tmp_path)
    for second in range(60):
        samples.add("cpu", second, 4.0 if second >= 57 else 1.0)
        samples.add("memory", second, GI)
    models.train(samples, 59.0, 1e9, [("pod", "cpu", "memory"), ("other", "cpu", "none")])
    models.save()
    for known in (models, Models(tmp_path)):
        peak = known.peak("pod")
        assert peak is not None
        assert peak.cpu == pytest.approx(1000, rel=0.06)
        assert peak.memory == pytest.approx(GI, rel=0.06)
        assert known.peak("other") is None
    models.keep([])
    assert models.peak("pod") is None
    assert list(tmp_path.iterdir()) == []
