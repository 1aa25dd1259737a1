"""``export --to module``: the tuned kernels as one Python file that needs Triton and torch only."""

from gemm_tuner.export.module.rows import LeftOut
from gemm_tuner.export.module.write import ModuleFile, write_module

__all__ = ["LeftOut", "ModuleFile", "write_module"]
