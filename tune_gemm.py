#!/usr/bin/env python3
"""Batch GEMM tuner: ``python tune_gemm.py --gemm_size_file sizes.yaml --compare``; ``--help`` tells more."""

import sys

if __name__ == "__main__":  # compile workers re-import this file: it must import nothing else
    from gemm_tuner.cli import main

    sys.exit(main())
