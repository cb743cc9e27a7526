"""Hydra's groups; `cfl_flower.config` composes and checks them."""
