"""Hydra's groups; `cfl_flower.config.compose` composes and checks them."""
