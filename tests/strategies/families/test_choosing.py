import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from cfl_flower.client_app import app as client_app
from cfl_flower.communication.records import pack_answers, unpack_answers
from cfl_flower.runs.measures import note_discrepancies
from cfl_flower.runs.record import RoundRecord
from cfl_flower.types import Result
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import app_of


def test_discrepancies_are_distances_to_the_clusters_model():
    models = [np.float32([0, 0]), np.float32([9, 9]), np.float32([1, 1])]
    arrays = [np.float32([3, 4]), np.float32([0, 1]), np.float32([1, 3])]
    results = [Result(i, 1, [array]) for i, array in enumerate(arrays)]
    record = RoundRecord(1)
    note_discrepancies(record, results, np.array([0, 0, 2]), models)
    assert record.measures == {"discrepancy": 8 / 3, "discrepancies": [3, None, 2]}


def lying_app(cluster: object) -> ClientApp:
    """Return the client app, in which client 3 claims to have chosen something."""

    def call(message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        if "answers" not in reply.content.config_records:
            return reply
        answers = unpack_answers(reply.content)
        for answer in answers:
            if answer.client == 3 and "cluster" in answer.metrics:
                answer.metrics["cluster"] = cluster  # type: ignore[assignment]
        return Message(pack_answers(answers), reply_to=message)

    return app_of(call)


@pytest.mark.parametrize("cluster", [7, "first", True])
@pytest.mark.parametrize("strategy", ["ifca", "flexcfl"])
def test_an_invalid_choice_costs_only_its_client(strategy, cluster, run_small):
    grid = InProcessGrid([{}], lying_app(cluster))
    options = [f"strategy={strategy}", "clusters=3", "rounds=2"]
    options += ["strategy.alpha=1", "seed=5"] if strategy == "flexcfl" else []
    options += ["participants=12"]
    run = run_small(*options, grid=grid)
    assert {(f["client"], f["reason"]) for f in run.failures} == {(3, "representation")}
    # What it claims changes nothing: it is not served before it has chosen, and its
    # trained model is left out.
    tested = {row["client"] for row in run.clients}
    assert tested == set(range(12)) - ({3} if strategy == "flexcfl" else set())
