"""Networks, and a model as one flat vector.

Every network adapts to the dataset's input shape and number of classes, and splits
into an extractor and a classifier. On the wire and on the server a model is one float32
vector; `FlatModel` lets torch train that very vector, so that nothing is copied layer
by layer.
"""

from cfl_flower.models.adapters import Adapted as Adapted
from cfl_flower.models.adapters import merged as merged
from cfl_flower.models.convolutional import CcflCnn as CcflCnn
from cfl_flower.models.convolutional import FedCcfaCnn as FedCcfaCnn
from cfl_flower.models.convolutional import FlexCflFashionCnn as FlexCflFashionCnn
from cfl_flower.models.convolutional import FlexCflFemnistCnn as FlexCflFemnistCnn
from cfl_flower.models.convolutional import FlexCflMnistCnn as FlexCflMnistCnn
from cfl_flower.models.convolutional import LeNet5 as LeNet5
from cfl_flower.models.flat import FlatModel as FlatModel
from cfl_flower.models.flat import Split as Split
from cfl_flower.models.flat import trainable as trainable
from cfl_flower.models.network import ModelSettings as ModelSettings
from cfl_flower.models.network import Network as Network
from cfl_flower.models.network import build_model as build_model
from cfl_flower.models.network import build_network as build_network
from cfl_flower.models.network import model_of as model_of
from cfl_flower.models.networks import Mclr as Mclr
from cfl_flower.models.networks import Mlp as Mlp
from cfl_flower.models.networks import Recurrent as Recurrent
from cfl_flower.models.networks import SoftmaxRegression as SoftmaxRegression
from cfl_flower.models.torchvision_networks import ResNet18 as ResNet18
from cfl_flower.models.torchvision_networks import ShuffleNetV2 as ShuffleNetV2
from cfl_flower.models.torchvision_networks import (
    VisionTransformer as VisionTransformer,
)
