"""Whether MPI takes device arrays, by a process of its own: python -m mpibow.cuda.exchange.probe may crash."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from mpibow.comm.library import load

SIZES = (64, 1 << 22)  # bytes: sent at once, and after a handshake
SECONDS = 60.0
# Variables that launchers set: with them the probe would take itself for a rank of this job.
LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "MV2_", "MPI_", "SLURM_", "HYDRA_", "MPIR_", "FLUX_", "PALS_")
SETTINGS = ("OMPI_MCA_", "OMPI_ALLOW_RUN_AS_ROOT", "MV2_USE_CUDA")  # how MPI is set up: kept, but for
OF_A_JOB = ("OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix", "OMPI_MCA_plm", "OMPI_MCA_initial_wdir")


def takes_device_arrays(command: Sequence[str] | None = None) -> str:
    """'' if MPI takes device arrays, else the reason. Never raises, and never crashes this process."""
    command = command or [sys.executable, "-m", "mpibow.cuda.exchange.probe"]
    try:
        done = subprocess.run(
            command, env=without_launcher(os.environ), capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the probe did not end within {SECONDS:g} seconds"
    except OSError as error:
        return f"the probe did not start: {error}"
    if done.returncode == 0:
        return ""
    if done.returncode < 0 or done.returncode > 128:
        number = -done.returncode if done.returncode < 0 else done.returncode - 128
        return f"MPI crashes on a device array (signal {number})"
    last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
    return f"the probe ended with code {done.returncode}: {last}"


def without_launcher(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that no launcher has started."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(OF_A_JOB) and (name.startswith(SETTINGS) or not name.startswith(LAUNCHERS))
    }


def main() -> int:
    """Sends device arrays to itself, and checks the received ones. Not run on a GPU yet."""
    from mpibow.cuda.device.cupy_driver import Driver, load_cupy

    cupy, mpi = load_cupy(), load()
    Driver().use(0)
    mpi.Init()
    for size in SIZES:
        sent = cupy.arange(size // 4, dtype=cupy.float32)
        received = cupy.zeros(size // 4, cupy.float32)
        cupy.cuda.runtime.deviceSynchronize()
        mpi.COMM_SELF.Sendrecv(sent, 0, 0, received, 0, 0)
        if not bool((sent == received).all()):
            sys.stderr.write(f"{size} bytes arrived changed\n")
            return 1
    mpi.Finalize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
