"""
What SGLang will do with a GPU's memory, worked out before it is launched: 0.5.6 to 0.5.23.

Read from `server_args.py`, `model_executor/model_runner*.py` and, from 0.5.17, `mem_cache/
kv_cache_configurator.py` of the released wheels. The demo box has an arithmetic of its own.
"""
