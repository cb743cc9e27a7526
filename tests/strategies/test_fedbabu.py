from __future__ import annotations

import pytest

from cfl_flower.errors import ConfigError
from tests.conftest import Runner


def test_a_network_without_an_extractor_is_refused(run_small: Runner) -> None:
    with pytest.raises(ConfigError, match=r"model=mclr has no extractor.*model=mlp"):
        run_small("strategy=fedbabu")
