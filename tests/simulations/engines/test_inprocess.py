import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from simulations.engines.inprocess import InProcessGrid


def echo() -> ClientApp:
    """Return an app that says which node it ran on, with which node config."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:
        if context.node_config.get("broken"):
            raise ValueError("no such sensor")
        said = ConfigRecord({"node": context.node_id, **context.node_config})
        return Message(RecordDict({"said": said}), reply_to=message)

    return app


def ask(grid: InProcessGrid, *nodes: int) -> list[Message]:
    content = RecordDict({"empty": ConfigRecord({})})
    return grid.send_and_receive([Message(content, node, "query") for node in nodes])


def test_each_node_answers_for_itself_and_one_that_raises_with_an_error():
    grid = InProcessGrid([{}, {"broken": True}, {"client-id": "site-a"}], echo())
    first, broken, last = grid.get_node_ids()
    replies = ask(grid, last, broken, first)
    assert [reply.metadata.src_node_id for reply in replies] == [last, broken, first]
    assert "ValueError: no such sensor" in replies[1].error.reason
    said = [dict(replies[place].content["said"]) for place in (0, 2)]
    assert said[0] == {"node": last, "client-id": "site-a"}
    assert said[1] == {"node": first, "num-partitions": 3}


def test_a_reply_names_its_message_and_is_handed_out_once():
    grid = InProcessGrid([{}], echo())
    content = RecordDict({"empty": ConfigRecord({})})
    (node,) = grid.get_node_ids()
    ids = grid.push_messages([Message(content, node, "query") for _ in range(2)])
    assert len(set(ids)) == 2
    (second,) = grid.pull_messages([ids[1], "unknown"])
    assert second.metadata.reply_to_message_id == ids[1]
    (first,) = grid.pull_messages(ids)
    assert first.metadata.reply_to_message_id == ids[0]
    assert grid.pull_messages(ids) == []


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [([{}], "flwr-simulation"), ([{}, {"client-id": 1}], "flwr-serverapp")],
)
def test_the_run_record_says_whether_it_is_a_simulation(nodes, kind):
    assert InProcessGrid(nodes, echo()).run.primary_task_type == kind
