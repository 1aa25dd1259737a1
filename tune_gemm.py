#!/usr/bin/env python3
"""Batch GEMM tuner: ``python tune_gemm.py --gemm_size_file sizes.yaml --compare``; ``--help`` tells more."""

import sys

if __name__ == "__main__":  # compile workers re-import this file: it must import nothing else
    try:
        from gemm_tuner.cli.start import ready

        main = ready()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "gemm_tuner"):
            raise
        sys.stderr.write(
            f"tune_gemm.py: {error.name} is not installed for {sys.executable}; "
            "run make tune, then .venv/bin/python tune_gemm.py ...\n"
        )
        sys.exit(3)
    except KeyboardInterrupt:  # later ones are main's
        sys.exit(130)

    sys.exit(main())
