"""``python -m gemm_tuner.cli``: the same as tune_gemm.py."""

import sys

if __name__ == "__main__":  # compile workers import this module again, so it must import nothing at the top level
    from gemm_tuner.cli.start import main

    sys.exit(main())
