"""NVIDIA GPUs of an agent of an Ortet cluster, for boot.py: waits for the driver, then installs
the container toolkit. Only then k3s starts, which looks for the toolkit's runtime once.
"""
import glob
import json
import os
import shutil
import time

MODULE = "/proc/driver/nvidia/version"  # there while the kernel module is loaded
# What the Azure agent keeps of the extension, also over a restart of the machine.
STATUS = "/var/lib/waagent/Microsoft.HpcCompute.NvidiaGpuDriverLinux-*/status/*.status"
LOG = "/var/log/azure/nvidia-vmext-status"
RUNTIME = "nvidia-container-runtime"
INSTALLED = "/var/lib/ortet/toolkit/installed"  # digests of the packages that are installed
MACHINE = "/etc/ortet/boot.json"  # cloud-init writes it once for each machine
MINUTES = {"extension": 45, "image": 5, "none": 5}  # since then; the extension takes about 10
WAYS = {
    "extension": "see " + LOG + "; then reimage this machine (ortet cluster reimage), or use gpu.driver: none with the distribution's modules",
    "image": "this pool's image has to have the driver, built for this kernel; capture an agent that has it, or use gpu.driver: extension",
    "none": "add the distribution's modules to spec.packages, or use gpu.driver: extension",
}


class GPU:
    def __init__(self, root, run):
        self.path, self.run = lambda name: root + name, run

    def driver(self, settings):
        """Fails until the driver is loaded and whoever installs it is done: the extension may
        restart the machine at its end."""
        way = settings["driver"]
        state, text = self.extension() if way == "extension" else ("success", "")
        problem = ""
        if state != "success":
            problem = "extension NvidiaGpuDriverLinux " + (
                "reports %s: %s" % (state, text) if state else "has reported nothing yet")
        elif not os.path.exists(self.path(MODULE)):
            try:  # a module that was installed since the machine started
                self.run("modprobe", "nvidia")
            except (OSError, RuntimeError) as e:
                problem = str(e)
            if not os.path.exists(self.path(MODULE)):
                problem = "no NVIDIA driver in kernel %s: %s" % (os.uname().release, problem or MODULE + " is missing")
            else:
                problem = ""
        if not problem:
            return
        late = time.time() > os.stat(self.path(MACHINE)).st_mtime + MINUTES[way] * 60
        if state == "error":
            raise RuntimeError("%s; k3s does not start; %s" % (problem, WAYS[way]))
        if late:
            raise RuntimeError("%s, more than %d minutes after this machine was made; k3s does not start; %s" % (
                problem, MINUTES[way], WAYS[way]))
        raise RuntimeError(problem)

    def extension(self):
        """Returns the state of the newest report of the extension, and its text."""
        files = sorted(glob.glob(self.path(STATUS)), key=os.path.getmtime)
        if not files:
            return "", ""
        try:
            with open(files[-1]) as f:
                status = json.load(f)[0]["status"]
            text = " ".join((status.get("formattedMessage") or {}).get("message", "").split())
            return status["status"].lower(), text[-200:]
        except (ValueError, LookupError, TypeError, AttributeError) as e:
            return "unknown", "cannot read %s: %s" % (files[-1], e)  # it is being written

    def toolkit(self, settings):
        """Installs the packages, unless these are installed."""
        debs = settings.get("toolkit", [])
        want = " ".join(sorted(d["sha256"] for d in debs))
        have = self.path(INSTALLED)
        if debs and not (os.path.exists(have) and open(have).read() == want and self.runtime()):
            environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
            self.run("dpkg", "--configure", "-a", env=environment)  # what an eviction or a restart interrupted
            self.run("apt-get", "install", "-q", "-y", "--allow-downgrades", "-o", "DPkg::Lock::Timeout=600",
                     *[self.path(d["path"]) for d in debs], env=environment)
            with open(have, "w") as f:
                f.write(want)
        if not self.runtime():
            raise RuntimeError("no program %s, without which k3s has no runtime nvidia; %s" % (
                RUNTIME, "name all packages of the toolkit in artifacts.containerToolkit" if debs
                else "the pool's image has to have NVIDIA's container toolkit (gpu.driver: image)"))

    def runtime(self):
        return shutil.which(RUNTIME, path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")
