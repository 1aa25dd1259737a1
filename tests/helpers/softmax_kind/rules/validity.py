"""Which blocks hold a row."""

from gemm_tuner.space.rule import VALIDITY, rule


@rule(VALIDITY)
def block_holds_a_row(c, problem, device):
    """a program reads a whole row"""
    return c.BLOCK_SIZE >= problem.columns


@rule(VALIDITY)
def exact_blocks_end_with_the_row(c, problem, device):
    """without a mask the block must be the row"""
    return ~c.EXACT | (c.BLOCK_SIZE == problem.columns)
