"""What this machine needs, by the RAPL counters of Intel's and AMD's processors."""

from __future__ import annotations

import os
from pathlib import Path


class EnergyMeter:
    """Adds up what the machine needs; counters begin anew after some minutes."""

    joules: float | None = None
    """Up to the last reading; None where the kernel does not show them."""

    def __init__(self, folder: Path = Path("/sys/class/powercap")) -> None:
        self._last: dict[Path, int] = {}
        for zone in folder.glob("intel-rapl:*"):
            name = (zone / "name").read_text()
            counter = zone / "energy_uj"
            # A package has its cores in it.
            if name.startswith(("package", "dram")) and os.access(counter, os.R_OK):
                self._last[zone] = int(counter.read_text())
                self.joules = 0.0

    def read(self) -> None:
        """Read the counters."""
        for zone, last in self._last.items():
            now = int((zone / "energy_uj").read_text())
            passed = (now - last) % int((zone / "max_energy_range_uj").read_text())
            self.joules = (self.joules or 0.0) + passed / 1e6
            self._last[zone] = now
