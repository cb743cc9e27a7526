"""Settings that cannot be are told in one line, with key and value, before any run."""

import pytest
from safetensors.torch import save_file

from cfl_flower.errors import ConfigError
from cfl_flower.models import Mlp

COUNTED = "metrics=[balanced_accuracy]"

SCALES = ("clip", "noise_multiplier", "report_noise")

METHODS = {
    "auxo strategy.split_rounds=[0]": "strategy.split_rounds=0 is not allowed",
    "ccfl strategy.c1=0.8": "strategy.c1 + c2=1.05",
    "ccfl strategy.clusters=4": "strategy.clusters=4 is not allowed",
    "ccfl strategy.stream=cycles": "stream=cycles is not allowed; use rounds",
    "ccfl selection=oort": "which selects nobody",
    "fedavg selection=nearest": "no representations",
    "fedrep server_optimizer=qfedavg": "the loss of one received",
    "flash server_optimizer=yogi": "its own step or none",
    "flexcfl clusters=13": "clusters=13 is not allowed; use at most the 12",
    "ifca strategy.tested=best strategy.migration=true": "strategy.tested=",
    "scaffold strategy.local.momentum=0.9": "local.momentum=0.9 is not allowed; use 0",
    "stocfl server_optimizer=qfedavg": "the loss of one received",
    "pfedme strategy.local.momentum=0.5": "local.momentum=0.5 is not allowed; use 0",
    "pfedme strategy.local.weight_decay=0.5": "weight_decay=0.5 is not allowed; use 0",
    "pfedme strategy.local.mu=0.5": "local.mu=0.5 is not allowed; use 0",
    "fielding strategy/representation=gradient strategy.distance=js": "l1 or l2 or co",
    "fielding strategy/representation=combined strategy.distance=cosine": "l1 or l2 w",
    "fielding strategy/representation=pixels": "embedding, gradient, label_histogram",
    "fielding strategy.representation=gradient": "use strategy/representation= with on",
    "fedavg strategy/trigger=centre": "strategy/trigger has no effect with this",
    "fielding strategy/trigger=pairwise strategy.trigger.dleta=1": "did you mean delta",
    "fielding strategy/privacy=laplace strategy.privacy.epsilon=nan": "a finite number",
    **{
        f"fielding {key}={each}": f"{key.split()[1]}={each} is not allowed; use a numb"
        for each in ("1e-160", "1e+300")
        for key in (
            "strategy/privacy=laplace strategy.privacy.epsilon",
            "strategy/privacy=client strategy.privacy.noise_multiplier",
            *(f"privacy=local privacy.{key}" for key in SCALES),
        )
    },
    "fielding strategy/privacy=uniform": "known here: client, laplace, none",
    "fielding strategy/privacy=laplace strategy/representation=combined "
    "strategy.distance=l2": "label_histogram with strategy/privacy",
    "fedbabu": "model=mclr has no extractor",
    "fielding server_optimizer=yogi server_optimizer.tau=0": "a number above 0",
    "fielding server_optimizer=qfedavg server_optimizer.q=-1": "at least 0",
    "fielding selection=oort selection.pacer_delta=0": "above 0 and at most 100",
    "fielding metrics=[f2]": "metrics=f2 is not allowed; use a list of balanced_acc",
    "fielding metrics=[auc]": "auc, which is of two labels: dataset=digits has 10",
    f"fielding {COUNTED} privacy=local strategy/privacy=client": "with privacy",
    "fedavg privacy=local system.checkpoint_every=3": "checkpoint_every=3 is not",
    f"fedavg {COUNTED} privacy.secure_sums=true": "with privacy",
    "fedavg metrics=[per_class] privacy=local": "with privacy",
    **{
        f"fedavg faults.attackers=[{each}]": "faults.attackers"
        for each in ("12", "-1", "a", "1.5")
    },
    "ccfl strategy.robust=median": "strategy.robust=",
    "fesem strategy.robust=krum": "strategy.robust=",
    **{
        f"fedavg strategy.robust={rule} strategy.weighting=plain privacy=central": (
            "strategy.robust="
        )
        for rule in ("clip", "trimmed")
    },
    **{
        f"fedavg system.checkpoint_best={each}": f"best={each} is not allowed; use "
        for each in ("validation_accuracy", "auc", "macro_f1", "ari", "f2")
    },
}

SUMS = {
    "auxo": "whose server clusters single participants' updates; of methods",
    "cfl": "whose server splits clusters by single clients' updates",
    "fedccfa": "whose server clusters single participants' classifiers",
    "fedgroup": "whose server groups single clients' updates",
    "flexcfl": "whose server groups single clients' updates",
    "feddrift": "form=original is not allowed; use eager with",
    "fesem privacy=local": "the cluster that they chose, which no",
    "scaffold strategy.weighting=samples": "use plain with privacy",
    "ccfl": "does not say (`discloses`) that each cluster's sum",
    "fedavg server_optimizer=qfedavg": "sums, which covers no losses",
    "fedavg selection=oort": "sums, which covers no losses",
    "fedavg participants=2": "at most participants=2",
    "stocfl strategy.omega=sequential": "use parallel with",
    "fedavg privacy.least_members=1": "least_members",
    "fedavg strategy.robust=median": "strategy.robust=",
    "fedavg strategy.robust=clip privacy=local": "strategy.robust=",
    **{
        f"fedavg system.checkpoint_every={every}": f"checkpoint_every={every} is not"
        for every in (2, 10)
    },
}
"""Of secure sums, which single results have no part in."""

REPORTS = "strategy=fielding strategy/privacy=client privacy=central"
PRIVACY = {
    "strategy=fedavg privacy=central": "strategy.weighting=samples",
    "strategy=fielding privacy=local": "strategy/privacy=none",
    "strategy=fielding strategy/privacy=laplace privacy=local": "use client with",
    "strategy=fielding strategy/privacy=client": "privacy=central or local, which keep",
    f"{REPORTS} strategy/threshold_learning=trials": "threshold_learning=trials",
    "strategy=stocfl privacy=local strategy.refresh=on_drift": "refresh=on_drift",
    "strategy=stocfl privacy=local strategy.omega=sequential": "omega=sequential",
    "strategy=fesem privacy=local strategy.migration=true": "migration=True",
    **{
        f"strategy=fedavg privacy=local {options}": words
        for options, words in {
            "selection=oort": "; use random or nearest",
            "server_optimizer=qfedavg": "server_optimizer=qfedavg",
            "model=shufflenet_v2 dataset.size=9": "without running statistics",
            "privacy.epsilon_budget=1": "; use at least 4.38",
        }.items()
    },
    "strategy=fedavg privacy=global": "known here: central, local, none",
}
"""What has no guarantee. Which methods have none is in tests/docs/test_facts.py."""

LOCAL = {
    "optimizer=lbfgs": "optimizer=lbfgs",
    "optimizer=adamw strategy.local.momentum=0.9": "momentum=0.9 is not allowed; use 0",
    "optimizer_settings={nesterov:true}": "Nesterov momentum requires",
    "optimizer_settings={lr:1}": "multiple values for argument 'lr'",
    "optimizer_settings.beta=1": "settings of torch's SGD",
    "optimizer=adam strategy.local.optimizer_settings={capturable:true,foreach:true}": (
        "settings of torch's Adam"
    ),
    "schedule=LambdaLR": "schedule=LambdaLR is not allowed",
    "schedule=step": "'step_size'",
    "schedule=exponential strategy.local.schedule_settings={gamma:nan}": "rate is nan",
    "schedule_settings={step_size:1}": "use {} without strategy.local.schedule",
    "augment=[flip]": "augment=flip",
    "augment=[five_crop]": "one image that keeps its shape",
    "augment=[mix_up]": "a transform of one image",
    "augment=[{random_crop:{pad:1}}]": "settings of torchvision's RandomCrop",
    "augment=[random_crop] dataset=synthetic": "(60,), which are no images",
    "warmup=2 strategy=adapfedavg": "warmup=2 is not allowed; use 0: the server adapts",
    "clip=1 strategy=ccfl strategy.pretraining.warmup=1": "before all rounds",
}
"""Of the optimiser of clients."""

MODELS = {
    "model.trainable=[head.*]": "model.trainable=head.* is not allowed",
    "model.lora.rank=2 model.lora.targets=[query]": "model.lora.targets=query is not",
    "model=mclr model.lora.rank=2": "model.lora.rank=2 is not allowed; use 0",
    "model.weights=/no.pt": "model.weights=/no.pt is not allowed",
    "model.weights={narrow}": "a file with extractor.1.weight of shape (64, 64)",
    "model.weights={broken}": "cannot be read (",
    "model.wieghts=x": "did you mean weights?",
    "model.lora.rank=2 model.hidden=0": "model.hidden=0 is not allowed",
}
"""Of a network's weights, and of what is trained of it."""

ALL = {
    **{f"strategy={options}": words for options, words in METHODS.items()},
    **PRIVACY,
    **{f"privacy.secure_sums=true strategy={o}": words for o, words in SUMS.items()},
    **{f"strategy=fedavg strategy.local.{o}": words for o, words in LOCAL.items()},
    **{f"model=mlp {options}": words for options, words in MODELS.items()},
}


@pytest.mark.parametrize("options", ALL)
def test_what_cannot_be_is_one_line(options, run_small, tmp_path):
    narrow, broken = tmp_path / "narrow.safetensors", tmp_path / "broken.pt"
    save_file(Mlp(8).build((1, 8, 8), 10).state_dict(), narrow)
    broken.write_bytes(b"no weights")
    files = {"{narrow}": str(narrow), "{broken}": str(broken)}
    given = options
    for name, path in files.items():
        given = given.replace(name, path)
    with pytest.raises(ConfigError) as error:
        run_small(*given.split())
    assert ALL[options] in str(error.value)
    assert "\n" not in str(error.value)
