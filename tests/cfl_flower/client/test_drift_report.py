"""What the server asks of a client's data, and what the client reports."""

import numpy as np
import pytest

from cfl_flower.client.drift_report import HELD, DriftReport, ReportRequest
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Result

HISTOGRAM = np.float32([0.25, 0.75])


def test_request_survives_the_config_of_a_task():
    request = ReportRequest("label_histogram", 0.5, "abc")
    config = {**request.to_config(), HELD: "def"}
    found = ReportRequest.of(config)
    assert found == ReportRequest("label_histogram", 0.5, "abc", held="def")
    # Without a representation nothing is asked for.
    assert ReportRequest.of({"test": True}) is None
    assert ReportRequest.of({"representation": False}) is None


def test_report_survives_the_metrics_of_a_reply():
    metrics = DriftReport(HISTOGRAM, 12).to_metrics()
    found = DriftReport.from_metrics(metrics, 2, "label histogram")
    assert found.representation.tolist() == [0.25, 0.75]
    assert found.num_examples == 12


def test_reports_are_stacked_in_the_order_of_their_results():
    results = [
        Result(client, 1, report=DriftReport(HISTOGRAM * (1 - client), 5 + client))
        for client in (0, 1)
    ]
    points, counts = DriftReport.stack(results)
    assert points.tolist() == [[0.25, 0.75], [0, 0]]
    assert counts.tolist() == [5, 6]
    assert counts.dtype == np.int64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"representation": b"123"}, "3 bytes instead of 8"),
        ({"representation": None}, "NoneType"),
        ({"representation": np.float32([np.nan, 1]).tobytes()}, "finite"),
        ({"samples": -1}, "samples=-1"),
        ({"samples": True}, "samples=True"),
        ({"samples": "9"}, "samples='9'"),
    ],
)
def test_malformed_report_is_refused(change, words):
    metrics = {**DriftReport(HISTOGRAM, 12).to_metrics(), **change}
    with pytest.raises(InvalidResultError, match=words) as error:
        DriftReport.from_metrics(metrics, 2, "label histogram")
    assert error.value.reason == "representation"
