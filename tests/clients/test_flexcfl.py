import numpy as np

from cfl_flower.learning.optimizer import LocalTraining
from clients.flexcfl import FlexCFLClient
from strategies.flexcfl import FlexCFLSettings


def test_nobody_chooses_a_group_that_has_no_direction(make_context):
    context = make_context(1)
    context.settings = FlexCFLSettings(
        local=LocalTraining(epochs=1), pretraining=2, migration=False
    )
    client = FlexCFLClient(context)
    own = client.pretrain(1)
    nobody = np.zeros_like(own)
    assert client.choose([nobody, -own], {}, 1) == 1
    assert client.choose([-own, nobody, own], {}, 1) == 2
