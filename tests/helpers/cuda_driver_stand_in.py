"""Takes the place of CUDA's driver: a library with two H200s, of which GPU 1 is the second on another bus.

STAND_IN_CUDA: 'no device', 'old' for a driver of CUDA 12, 'a part' for instances of a GPU, 'no function' of the newest.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

static int is(const char *what) {
    const char *said = getenv("STAND_IN_CUDA");
    return said && strcmp(said, what) == 0;
}

int cuInit(unsigned flags) { return is("no device") ? 100 : 0; }
int cuDriverGetVersion(int *version) { *version = is("old") ? 12080 : 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return index < 2 ? 0 : 101; }

int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, length, "NVIDIA H200");
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 150110011392; return 0; }

int cuDeviceGetUuid(unsigned char *uuid, int device) {
    for (int at = 0; at < 16; at++) uuid[at] = 16 * device + at;
    return 0;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    cuDeviceGetUuid(uuid, device);
    if (is("a part")) uuid[0] = 0xff;
    return is("no function") ? 500 : 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 16: *value = 132; break;
        case 33: *value = 0xc3 + device; break;
        case 34: *value = 0; break;
        case 38: *value = 62914560; break;
        case 50: *value = 1; break;
        case 75: *value = 9; break;
        case 76: *value = 0; break;
        case 97: *value = 232448; break;
        default: return 1;
    }
    return 0;
}
"""


def build(folder: Path) -> None:
    """Puts the library into a folder, which is to be in LD_LIBRARY_PATH of a process that loads it."""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / "libcuda.so.1")]
    subprocess.run(command, input=SOURCE.encode(), check=True)
