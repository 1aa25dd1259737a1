"""The order of the stages: tune, predict, check; search rounds and finals. The only package that knows them all."""
