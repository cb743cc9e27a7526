from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cfl_flower.errors import ConfigError
from cfl_flower.models import (
    CcflCnn,
    FedCcfaCnn,
    FlatModel,
    FlexCflFashionCnn,
    FlexCflFemnistCnn,
    FlexCflMnistCnn,
    LeNet5,
    Mclr,
    Mlp,
    ModelSettings,
    Network,
    Recurrent,
    ResNet18,
    ShuffleNetV2,
    VisionTransformer,
    build_model,
)
from cfl_flower.models.requirements import check_network

MNIST, CIFAR, IMAGENET, TWEET = (1, 28, 28), (3, 32, 32), (3, 224, 224), (25, 300)
MINI_IMAGENET = (3, 84, 84)


TINY_VIT = VisionTransformer(patch=4, layers=1, heads=2, width=8, hidden=16)

# Each on inputs of a size of their own, the smallest where there is one.
ADAPTED = [
    (Mclr(), (60,)),
    (Mlp(hidden=3), (25, 4)),
    (FlexCflMnistCnn(), (3, 4, 5)),
    (FlexCflFemnistCnn(), (3, 14, 13)),
    (FlexCflFashionCnn(), (2, 9, 4)),
    (FedCcfaCnn(blocks=2), (3, 12, 13)),
    (FedCcfaCnn(blocks=3), (1, 16, 17)),
    (LeNet5(), (3, 12, 13)),
    (ResNet18(), (1, 9, 10)),
    (ResNet18(), (4, 64, 65)),
    (ShuffleNetV2(), (1, 9, 10)),
    (ShuffleNetV2(), (4, 64, 65)),
    (ResNet18(stem="imagenet"), (1, 33, 34)),
    (ShuffleNetV2(stem="imagenet"), (1, 33, 34)),
    (TINY_VIT, (1, 8, 8)),
    (Recurrent("gru"), (1, 4)),
    (Recurrent("lstm"), (3, 2)),
]


def draw(settings: ModelSettings, shape: tuple[int, ...], classes: int) -> nn.Module:
    torch.manual_seed(0)
    return settings.build(shape, classes)


@pytest.mark.parametrize(
    ("settings", "shape", "classes", "parameters"),
    [
        (Mclr(), MNIST, 10, 7_850),
        (Mlp(hidden=512), MNIST, 10, 407_050),
        (FlexCflMnistCnn(), MNIST, 10, 50_186),
        (FlexCflFemnistCnn(), MNIST, 10, 325_578),
        (FlexCflFashionCnn(), MNIST, 10, 3_274_634),
        (FedCcfaCnn(blocks=2), MNIST, 10, 117_066),
        (FedCcfaCnn(blocks=3), CIFAR, 10, 107_690),
        (LeNet5(), MNIST, 10, 61_706),
        (LeNet5(divided="convolutions"), (3, 28, 28), 10, 62_006),
        (Recurrent("gru"), TWEET, 2, 175_938),
        (Recurrent("lstm"), TWEET, 2, 233_154),
        (ResNet18(), CIFAR, 10, 11_173_962),
        (ResNet18(), IMAGENET, 1000, 11_689_512),
        (ResNet18(stem="small"), MINI_IMAGENET, 100, 11_173_962 + 90 * 513),
        (ShuffleNetV2(), IMAGENET, 1000, 2_278_604),
        (VisionTransformer(), IMAGENET, 1000, 86_567_656),
    ],
)
def test_parameter_counts_are_the_papers(settings, shape, classes, parameters):
    with torch.device("meta"):  # shapes without the memory and the draws
        module = settings.build(shape, classes)
    assert sum(tensor.numel() for tensor in module.parameters()) == parameters


@pytest.mark.parametrize("network", [ResNet18, ShuffleNetV2])
def test_the_small_stem_keeps_the_resolution_of_any_image(network):
    def stem(name: str, size: int) -> nn.Module:
        with torch.device("meta"):
            found: nn.Module = network(stem=name).build((3, size, size), 10).extractor
        return found

    for name, size, stride, pooled in (
        ("auto", 63, (1, 1), False),
        ("auto", 64, (2, 2), True),
        ("small", 84, (1, 1), False),
        ("imagenet", 63, (2, 2), True),
    ):
        module = stem(name, size)
        first = next(m for m in module.modules() if isinstance(m, nn.Conv2d))
        assert first.stride == stride
        pools = any(isinstance(m, nn.MaxPool2d) for m in module.modules())
        assert pools == pooled


@pytest.mark.parametrize(("settings", "shape"), ADAPTED)
def test_a_network_adapts_trains_on_a_batch_of_one_and_has_two_parts(settings, shape):
    model = FlatModel(draw(settings, shape, 7))
    assert model.module.training
    logits = model.module(torch.rand(1, *shape))
    assert logits.shape == (1, 7)
    logits.square().sum().backward()
    assert model.gradient.isfinite().all()
    module = model.module.eval()
    x = torch.rand(2, *shape)
    features = module.extractor(x)
    assert features.shape == (2, module.classifier.in_features)
    assert torch.equal(module(x), module.classifier(features))
    assert module.classifier not in list(module.extractor.modules())
    # Our own are held to what others are once, and not before each run.
    check_network(OfOnesOwn(settings.build), shape, 7)


@pytest.mark.parametrize("blocks", [2, 3])
def test_fedccfas_blocks_give_what_the_papers_order_gives(blocks):
    model = FlatModel(draw(FedCcfaCnn(blocks=blocks), CIFAR, 10))
    x = torch.randn(4, *CIFAR)
    logits = model.module(x)
    logits.square().sum().backward()
    first = model.gradient.clone()
    layers = list(model.extractor)
    for place in range(0, 3 * blocks, 3):
        convolution, pooling, activation = layers[place : place + 3]
        layers[place : place + 3] = [convolution, activation, pooling]
    network = Network(nn.Sequential(*layers), model.module.classifier)
    model.gradient.zero_()
    expected = network(x)
    expected.square().sum().backward()
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(first, model.gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "shape", "said"),
    [
        (FlexCflMnistCnn(), (60,), r"model=flexcfl_cnn_mnist .*\(60,\).* 4x4"),
        (FlexCflMnistCnn(), (1, 3, 28), r"model=flexcfl_cnn_mnist .* 4x4"),
        (FlexCflFemnistCnn(), (1, 12, 28), r"model=flexcfl_cnn_femnist .* 13x13"),
        (FlexCflFashionCnn(), (1, 28, 3), r"model=flexcfl_cnn_fashion .* 4x4"),
        (FedCcfaCnn(blocks=2), (1, 11, 28), r"model=fedccfa_cnn .* 12x12"),
        (FedCcfaCnn(blocks=3), (3, 15, 15), r"model=fedccfa_cnn .* 16x16"),
        (LeNet5(), (1, 11, 28), r"model=lenet5 .* 12x12"),
        (ResNet18(), (1, 8, 8), r"model=resnet18 .* 9x9"),
        (ShuffleNetV2(), (60,), r"model=shufflenet_v2 .* 9x9"),
        (ResNet18(stem="imagenet"), (3, 32, 32), r"model=resnet18 .* 33x33"),
        (VisionTransformer(), (60,), r"model=vit_b_16 .*square"),
        (VisionTransformer(), (3, 32, 16), r"model=vit_b_16 .*square"),
        (VisionTransformer(), (1, 28, 28), r"model\.patch=16 .*divisor .* 28"),
        (Recurrent("lstm"), (25,), r"model=lstm .*\(25,\).*\(tokens, dimensions\)"),
        (Recurrent("gru"), MNIST, r"model=gru .*\(1, 28, 28\)"),
    ],
)
def test_inputs_that_do_not_fit_are_told_in_one_line(settings, shape, said):
    with pytest.raises(ConfigError, match=said) as caught:
        settings.build(shape, 10)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_text_is_represented_by_the_last_state_of_both_directions(cell):
    extractor = draw(Recurrent(cell), (5, 4), 2).eval().extractor
    x = torch.rand(3, 5, 4)
    _, state = extractor.second(extractor.first(x)[0])
    last = state if cell == "gru" else state[0]
    expected = extractor.dense(torch.cat((last[0], last[1]), 1))
    torch.testing.assert_close(extractor(x), expected)


@pytest.mark.parametrize("settings", [ResNet18(), ShuffleNetV2()])
def test_all_of_a_normalised_network_is_in_its_vector(settings):
    shape = (1, 16, 16)
    sender, receiver = (FlatModel(settings.build(shape, 3)) for _ in range(2))
    x = torch.rand(4, *shape)
    sender.module(x)
    receiver.load(sender.to_vector())
    kept = [t.numel() for t in sender.module.state_dict().values() if t.dim()]
    assert len(sender.vector) == sum(kept)
    outputs: list[Tensor] = [m.module.eval()(x) for m in (sender, receiver)]
    assert torch.equal(*outputs)


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        (FlexCflMnistCnn(), (1, 8, 8)),
        (ResNet18(), (1, 16, 16)),
        (TINY_VIT, (1, 8, 8)),
        (Recurrent("gru"), (3, 4)),
    ],
)
def test_every_kind_of_network_starts_as_its_seed_says(settings, shape):
    before = torch.random.get_rng_state()
    models = [build_model(settings, shape, 3, seed) for seed in (1, 1, 2)]
    one, again, other = (model.vector for model in models)
    assert one.dtype == torch.float32
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("settings", [Mclr(), Mlp(hidden=3)])
def test_a_vector_of_another_length_does_not_fit(settings):
    model = FlatModel(settings.build((1, 2, 2), 3))
    # One number would be taken for all of them.
    for length in (len(model.vector) + 1, 1):
        with pytest.raises(ValueError, match=f"a vector of {length} numbers"):
            model.load(np.zeros(length, np.float32))


def test_the_loaded_vector_stays_the_callers():
    received = np.float32([1, 2, 3])
    FlatModel(nn.Linear(2, 1)).load(received).vector.zero_()
    assert received.tolist() == [1, 2, 3]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_lie_channels_last_and_answers_stay_the_same(channels):
    module = CcflCnn([2, 3]).build((channels, 16, 20), 4).eval()
    layouts: list[bool] = []
    module.get_submodule("extractor.0").register_forward_hook(
        lambda _module, given, _output: layouts.append(
            given[0].stride() == (channels * 16 * 20, 1, 20 * channels, channels)
        )
    )
    x = torch.rand(5, channels, 16, 20)
    plain = nn.Sequential(*module.get_submodule("extractor").children())
    with torch.no_grad():
        answers = module(x)
        assert layouts == [True]
        expected = module.get_submodule("classifier")(plain(x))
    torch.testing.assert_close(answers, expected, rtol=1e-5, atol=1e-6)


class OfOnesOwn:
    """A network with a mistake, as a newcomer's might have."""

    def __init__(self, build: Callable[[tuple[int, ...], int], nn.Module]) -> None:
        self.build = build


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(8, 4), r"Linear returns \(2, 4\) for 2 .*; it must .* \(2, 5\)"),
        (nn.Linear(9, 5), r"OfOnesOwn fails on inputs of shape \(8,\) \(RuntimeError"),
        (nn.GRU(8, 5), "GRU returns a tuple for 2 inputs"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(module, message):
    own = OfOnesOwn(lambda shape, classes: deepcopy(module))
    with pytest.raises(ConfigError, match=message):
        check_network(own, (8,), 5)


def test_a_copy_has_the_hooks_of_weights():
    """One doubles a gradient, another notes each step's."""
    network = nn.Linear(3, 2)
    seen = []
    network.weight.register_hook(lambda gradient: 2 * gradient)
    network.bias.register_post_accumulate_grad_hook(seen.append)
    model = FlatModel(network)
    copy = model.clone()
    x = torch.arange(6.0).reshape(2, 3)
    for each in (model, copy):
        each.module(x).sum().backward()
    assert torch.equal(copy.gradient, model.gradient)
    assert model.gradient[:3].tolist() == [6, 10, 14]
    assert len(seen) == 2
