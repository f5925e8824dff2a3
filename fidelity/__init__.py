"""How close simulations come to real runs that others measured, and the profile cards fitted to them.

``python -m fidelity`` simulates every shared run and writes the tables of docs/fidelity-timing.md;
``python -m fidelity cards`` fits the bundled cards anew. One file for each set of measurements. The data
are read from a folder beside the repository and are no part of it; only coefficients are, with their source.
"""
