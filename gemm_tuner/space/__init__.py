"""The search space: axes per architecture, all their combinations, the rules that prune them, and the state of each
configuration in a run.

May import core, system.
"""
