"""The model: multinomial logistic regression."""

from cfl_flower.models import Mclr

__all__ = ["Mclr"]
