"""What this machine needs, by the RAPL counters of Intel's and AMD's processors."""

from __future__ import annotations

from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
"""Where Linux shows them; since 2020 mostly to root alone."""

COUNTED = ("package", "dram")
"""Zones by the beginning of their names: a package has its cores in it."""


class EnergyMeter:
    """Adds up the energy of the whole machine since it was made.

    A counter begins anew after ten minutes or more under full load: it is to be read
    more often than that.
    """

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._microjoules = 0
        self._last: dict[Path, int] = {}
        for zone in sorted(folder.glob("intel-rapl:*")):
            try:
                if (zone / "name").read_text().startswith(COUNTED):
                    self._last[zone] = _read(zone, "energy_uj")
            except (OSError, ValueError):
                continue

    @property
    def joules(self) -> float | None:
        """Up to the last reading; None where the kernel does not show them."""
        return self._microjoules / 1e6 if self._last else None

    def read(self) -> None:
        """Read the counters."""
        for zone, last in self._last.items():
            now = _read(zone, "energy_uj")
            passed = now - last
            if passed < 0:
                passed += _read(zone, "max_energy_range_uj")
            self._microjoules += passed
            self._last[zone] = now


def _read(zone: Path, name: str) -> int:
    return int((zone / name).read_text())
