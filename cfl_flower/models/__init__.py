"""Networks, and a model as one flat vector.

Every network adapts to the dataset's input shape and number of classes, and splits
into an extractor and a classifier. On the wire and on the server a model is one float32
vector; `FlatModel` lets torch train that very vector, so that nothing is copied layer
by layer.
"""

from cfl_flower.models.base import ModelSettings, Network
from cfl_flower.models.convolutional import (
    CcflCnn,
    FedCcfaCnn,
    FlexCflFashionCnn,
    FlexCflFemnistCnn,
    FlexCflMnistCnn,
)
from cfl_flower.models.dense import Mclr, Mlp, SoftmaxRegression
from cfl_flower.models.flat import (
    FlatModel,
    Split,
    build_network,
    check_network,
    count_floats,
    count_weights,
    has_extractor,
    hollow_network,
    initial_vector,
    split_module,
    trainable,
)
from cfl_flower.models.recurrent import Recurrent
from cfl_flower.models.vision import ResNet18, ShuffleNetV2, VisionTransformer

__all__ = [
    "CcflCnn",
    "FedCcfaCnn",
    "FlatModel",
    "FlexCflFashionCnn",
    "FlexCflFemnistCnn",
    "FlexCflMnistCnn",
    "Mclr",
    "Mlp",
    "ModelSettings",
    "Network",
    "Recurrent",
    "ResNet18",
    "ShuffleNetV2",
    "SoftmaxRegression",
    "Split",
    "VisionTransformer",
    "build_network",
    "check_network",
    "count_floats",
    "count_weights",
    "has_extractor",
    "hollow_network",
    "initial_vector",
    "split_module",
    "trainable",
]
