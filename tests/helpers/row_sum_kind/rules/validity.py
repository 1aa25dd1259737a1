"""Which loops make sense."""

from gemm_tuner.space.rule import VALIDITY, rule


@rule(VALIDITY)
def a_step_is_within_a_row(c, problem, device):
    """a longer step never runs"""
    return c.PARTS <= problem.columns
