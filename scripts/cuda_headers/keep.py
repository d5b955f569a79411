"""Unpacks of a wheel of NVIDIA's what compiling needs: keep.py WHEEL FOLDER.

Headers, ptxas, libdevice and the runtime's library, in the places that a toolkit has them in. Wheels have them as
nvidia/COMPONENT/include/... up to CUDA 12.
"""

import pathlib
import sys
import zipfile

KEPT = ("include/", "bin/ptxas", "nvvm/libdevice/", "lib/libcudart.so")


def main(wheel: str, folder: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = entry.filename.split("/", 2)
            if len(parts) < 3 or parts[0] != "nvidia" or entry.is_dir():
                continue
            inside = pathlib.PurePosixPath(parts[2])
            if not parts[2].startswith(KEPT) or inside.suffix == ".py" or ".." in inside.parts:
                continue
            target = pathlib.Path(folder, inside)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(entry))
            if inside.name == "ptxas":
                target.chmod(0o755)


if __name__ == "__main__":
    main(*sys.argv[1:])
