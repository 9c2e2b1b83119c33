"""
mtpdeploy: one command brings up SGLang with multi-token prediction on a rented GPU box.

Reading order, from the ground up:

1. `errors`, then `core`: the words of the domain as frozen values and pure functions.
2. `engines.sglang`: what is known about one server program: flags, milestones, failures, rungs.
3. `inventory` (hosts.toml), `render` (templates), `clock`.
4. `onbox`: small standard-library programs that are sent to the box and run there.
5. `remote`: the line to a box: connecting, asking, following, stopping.
6. `deploy`: the story: `up`, `attempt`, `watch`, `verify`, `attach`, `down`, `journal`.
7. `cli`: commands and words. `demo`: the built-in simulated box.
"""
