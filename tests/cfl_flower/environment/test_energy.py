"""The energy of this machine, from a folder as the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfl_flower.environment.energy import EnergyMeter


def show(folder: Path, **counters: int) -> None:
    """Write the counters of zones, which begin anew after 1,000 uJ."""
    for place, (name, value) in enumerate(counters.items()):
        zone = folder / f"intel-rapl:{place}"
        zone.mkdir(exist_ok=True)
        (zone / "name").write_text(f"{name}\n")
        (zone / "energy_uj").write_text(f"{value}\n")
        (zone / "max_energy_range_uj").write_text("1000\n")


def test_packages_and_memory_are_added_up_over_the_end_of_a_counter(
    tmp_path: Path,
) -> None:
    show(tmp_path, package_0=900, core=5, dram=10, psys=0)
    meter = EnergyMeter(tmp_path)
    show(tmp_path, package_0=950, core=80, dram=20, psys=99)
    meter.read()
    assert meter.joules == pytest.approx(60e-6)
    show(tmp_path, package_0=100, core=90, dram=20, psys=99)
    meter.read()
    assert meter.joules == pytest.approx(210e-6)


def test_nothing_is_measured_where_the_kernel_shows_nothing(tmp_path: Path) -> None:
    assert EnergyMeter(tmp_path).joules is None
    (tmp_path / "intel-rapl:0").mkdir()
    (tmp_path / "intel-rapl:0" / "name").write_text("package-0\n")
    assert EnergyMeter(tmp_path).joules is None
