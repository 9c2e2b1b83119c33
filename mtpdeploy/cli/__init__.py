"""See the reading order in `mtpdeploy/__init__.py`."""
