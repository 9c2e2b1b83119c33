import _anystub

__version__ = "0.0.0"
_anystub.install(__name__)
