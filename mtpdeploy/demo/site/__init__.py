"""What the demo box has on its PYTHONPATH: the simulated SGLang. Standard library only, 3.9 or later."""
