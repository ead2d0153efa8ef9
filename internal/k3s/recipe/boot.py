#!/usr/bin/env python3
"""Prepares a machine of an Ortet cluster, at every boot, before k3s starts.

boot.py          everything up to /run/ortet/booted, run by ortet-boot.service
boot.py publish  the server's tags, the pools of its admission server, settings that
                 change while it runs, and its share, by ortet-publish.service
boot.py share    an agent's share, by ortet-share.timer
boot.py login    the server into its tailnet, by ortet cluster up --tailscale-key, which gives
                 the key to its standard input

What a machine is, and an agent's settings, are in /etc/ortet/boot.json; the server's
settings are its VM's userData. They hold no secret. Whatever fails is retried for ever,
with pauses, and each new reason is logged once. The server's state, or the reason why it
cannot go on, is also a tag of its VM.
"""
import base64
import datetime
import errno
import glob
import hashlib
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import state

# Tests run this program on another root, with other pauses and another metadata service.
ROOT = os.environ.get("ORTET_ROOT", "")
PAUSE = float(os.environ.get("ORTET_PAUSE", "2"))
IMDS = os.environ.get("ORTET_IMDS", "http://169.254.169.254")

# azEnvironment of the metadata service, and the cloud's resource manager.
CLOUDS = {
    "AzurePublicCloud": "https://management.azure.com",
    "AzureUSGovernmentCloud": "https://management.usgovcloudapi.net",
    "AzureChinaCloud": "https://management.chinacloudapi.cn",
}
COMPUTE_API = "2024-07-01"
NETWORK_API = "2024-05-01"
STORAGE_API = "2023-05-01"
TAGS_API = "2021-04-01"

# The state disk, and which folders are on it. k3s keeps a hash of each node's password in
# the datastore, the server's too: without "node" it would refuse its own kubelet.
STATE = "/var/lib/ortet/state"
FOLDERS = {"server": "/var/lib/rancher/k3s/server", "storage": "/var/lib/rancher/k3s/storage", "node": "/etc/rancher/node"}
# Units that have to start again with another of these artifacts.
RESTART = {"k3s": "k3s.service", "images": "k3s.service", "ortet": "ortet-admission.service"}
APPLIED = "/run/ortet/settings"  # digest of the settings that the server runs by
RESTARTS = "/run/ortet/restarts"  # units that have to start again, noted before what they read changes
DATASTORE = "/var/lib/rancher/k3s/server/db"
SHARE_KEY = "/run/ortet/share-key"  # digest of the account's key with which the share answered
SHARE_PROBLEM = "/run/ortet/share-problem"  # why the share does not answer; "" is none
ADMISSION = "/run/ortet/admission/"  # what the admission server reaches k3s by
TOKEN_AGE = 20 * 60  # seconds, of a token that is valid for an hour
MANIFESTS = "/var/lib/rancher/k3s/server/manifests/"


def path(name):
    return ROOT + name


def log(text):
    print("ortet-boot: " + text, flush=True)


def write(name, text, mode=0o600, units=()):
    """Writes a file wholly or not at all, and notes who reads it. Returns whether it changed."""
    file = path(name)
    if os.path.isfile(file) and open(file).read() == text:
        os.chmod(file, mode)
        return False
    os.makedirs(os.path.dirname(file), exist_ok=True)
    temporary = file + ".part"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as f:
        os.fchmod(f.fileno(), mode)
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    note(units)
    os.replace(temporary, file)
    return True


def text_of(name):
    """Returns what a file holds, "" for a missing one."""
    return open(path(name)).read() if os.path.exists(path(name)) else ""


def noted():
    return text_of(RESTARTS).split()


def note(units):
    """Notes units to restart. What is interrupted after a change still restarts them."""
    if units:
        write(RESTARTS, " ".join(sorted({*noted(), *units})))


def once(what, do):
    """Does a step, and names it if it fails."""
    try:
        return do()
    except Exception as e:
        raise RuntimeError("%s: %s" % (what, e)) from None


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        reason = " ".join(done.stderr.split())[-300:]
        raise RuntimeError("%s: exit code %d: %s" % (" ".join(command[:4]), done.returncode, reason))
    return done.stdout.strip()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the next host would get the token."""

    def redirect_request(self, *_):
        return None


def origin(url):
    u = urllib.parse.urlsplit(url)
    return u.scheme, u.hostname, u.port or {"http": 80, "https": 443}.get(u.scheme)


def request(method, url, body=None, headers=None, direct=False):
    """Sends JSON and returns JSON. The metadata service is reached without a proxy."""
    opener = urllib.request.build_opener(NoRedirect, *([urllib.request.ProxyHandler({})] if direct else []))
    data = None if method == "GET" else json.dumps(body or {}).encode()
    headers = dict(headers or {}, **{"Content-Type": "application/json"})
    r = urllib.request.Request(url, data=data, method=method, headers=headers)
    shown = method + " " + url.split("?")[0]
    try:
        with opener.open(r, timeout=30) as answer:
            return json.loads(answer.read() or "{}")
    except urllib.error.HTTPError as e:
        raise RuntimeError("%s: HTTP %d%s" % (shown, e.code, reason_of(e))) from None
    except OSError as e:
        raise RuntimeError("%s: %s" % (shown, getattr(e, "reason", e))) from None


def reason_of(error):
    """Code and message in the body of an error of Azure's."""
    try:
        e = json.loads(error.read())["error"]
        return " %s: %s" % (e["code"], e["message"]) if isinstance(e, dict) else " " + e
    except Exception:
        return ""


class Machine:
    def __init__(self):
        with open(path("/etc/ortet/boot.json")) as f:
            self.settings = json.load(f)
        self.machine = self.settings
        self.server = self.settings["role"] == "server"
        self.cloud = self.digest = self.damage = None
        if self.server:  # agents have no such file
            import tailnet
            self.tailnet = tailnet.Tailnet(ROOT, run, PAUSE)
        if self.settings.get("driver"):  # of GPUs; other machines have no such file
            import gpu
            self.gpu = gpu.GPU(ROOT, run)
        self.said = self.published = self.unpublished = self.unlabelled = None

    def metadata(self):
        return request("GET", IMDS + "/metadata/instance/compute?api-version=2021-02-01",
                       headers={"Metadata": "true"}, direct=True)

    def read_settings(self):
        """Returns the settings in the VM's userData, and their digest."""
        data, s = self.metadata().get("userData") or "", None
        try:
            data = base64.b64decode(data, validate=True)
            s = json.loads(data)
        except ValueError:
            pass
        if not isinstance(s, dict) or s.get("cluster") != self.machine["cluster"]:
            raise RuntimeError("userData of VM %s is not that of cluster %s; ortet cluster up writes it" % (
                self.machine["serverName"], self.machine["cluster"]))
        return s, hashlib.sha256(data).hexdigest()[:16]

    def load(self):
        s, self.digest = self.read_settings()
        self.settings = dict(s, **self.machine)

    def discover(self):
        """Learns subscription, group and endpoints."""
        where = self.metadata()
        environment = where.get("azEnvironment") or "AzurePublicCloud"
        manager = os.environ.get("ORTET_RESOURCE_MANAGER") or CLOUDS.get(environment)
        if not manager:
            raise RuntimeError("cloud %s is unknown; set ORTET_RESOURCE_MANAGER in /etc/default/ortet-boot" % environment)
        manager = manager.rstrip("/")
        found = request("GET", manager + "/metadata/endpoints?api-version=2020-06-01")
        if isinstance(found, list):  # of all clouds that this one knows
            found = next((c for c in found if c.get("resourceManager", "").rstrip("/") == manager), found[0])
        group = "/subscriptions/%s/resourceGroups/" % where["subscriptionId"]
        self.where = {"cloud": environment, "subscriptionId": where["subscriptionId"],
                      "resourceGroup": where["resourceGroupName"], "location": where["location"]}
        self.compute = group + where["resourceGroupName"] + "/providers/Microsoft.Compute/"
        self.network = group + where["resourceGroupName"] + "/providers/Microsoft.Network/"
        self.vm = self.compute + "virtualMachines/" + self.settings["serverName"]
        self.storage = group + self.settings["storageGroup"] + "/providers/"
        self.identity = self.storage + "Microsoft.ManagedIdentity/userAssignedIdentities/" + self.settings["identity"]
        self.audience = found["authentication"]["audiences"][0]
        self.suffix = os.environ.get("ORTET_STORAGE_SUFFIX") or found["suffixes"]["storage"]
        self.cloud = manager

    def arm(self, method, resource, version, body=None):
        """Asks the resource manager, and no other host, as the machine's managed identity."""
        url = "%s%s?api-version=%s" % (self.cloud, resource, version) if resource.startswith("/") else resource
        if origin(url) != origin(self.cloud):
            raise RuntimeError("nextLink %s is not of %s" % (url.split("?")[0], self.cloud))
        query = urllib.parse.urlencode({"api-version": "2018-02-01", "resource": self.audience, "msi_res_id": self.identity})
        token = request("GET", IMDS + "/metadata/identity/oauth2/token?" + query,
                        headers={"Metadata": "true"}, direct=True)["access_token"]
        return request(method, url, body, {"Authorization": "Bearer " + token})

    def tag(self, tags):
        self.arm("PATCH", self.vm + "/providers/Microsoft.Resources/tags/default", TAGS_API,
                 {"operation": "Merge", "properties": {"tags": tags}})

    def state(self, text):
        """Logs a state once; the server also publishes it, as soon as it can."""
        if text != self.said:
            log(text)
        self.said = text
        if not self.server or not self.cloud or self.published == text:
            return
        try:  # a tag's value has at most 256 characters
            self.tag({self.settings["tags"]["boot"]: text[:256]})
            self.published = text
        except Exception as e:
            if str(e) != self.unpublished:
                log("cannot publish the state as a tag: %s" % e)
            self.unpublished = str(e)

    def forever(self, what, do):
        """Does a step until it succeeds. A boot that fails by its settings starts again
        with those that ortet cluster up corrects."""
        if what:
            self.state(what)
        pause = PAUSE
        while True:
            try:
                return do()
            except Exception as e:
                self.state("%s: %s" % (what, e) if what else str(e))
            time.sleep(pause)
            pause = min(pause * 2, PAUSE * 15)
            if what and self.digest and self.changed():
                os.execv(sys.executable, [sys.executable, *sys.argv])

    def boot(self):
        self.forever("asking Azure about this machine", self.discover)
        if self.server:
            self.forever("reading the settings", self.load)
        self.install(self.forever)
        if self.server:
            if not os.path.exists(path("/run/ortet/booted")):  # k3s does not run
                self.forever("checking the datastore", lambda: state.repair(path(DATASTORE)))
            self.settle()
        write("/run/ortet/booted", "")
        self.state("; ".join(filter(None, ["starting k3s", state.repaired(path(DATASTORE))])))

    def install(self, step):
        """Makes the machine what its settings say. step does the steps, by forever or once."""
        s = self.settings
        step("installing packages", self.packages)
        step("starting the metadata guard", lambda: run("systemctl", "start", "ortet-metadata-guard.service"))
        step("mounting share %s of %s" % (s["share"], s["account"]), self.mount)
        if self.server:
            step("mounting the state disk", self.mount_state)
        # All are fetched before one takes its place: with a wrong digest all stays as it is.
        fetched = [(a, step("fetching " + a["name"], lambda a=a: fetch(a))) for a in s["artifacts"] + s.get("manifests", []) + s.get("toolkit", [])]
        for artifact in [a for a, new in fetched if new]:
            note([RESTART[artifact["name"]]] if artifact["name"] in RESTART else [])
            os.replace(path(artifact["path"]) + ".part", path(artifact["path"]))
        if s.get("driver"):  # k3s looks for the runtime once, when it starts
            # By "waiting for the NVIDIA driver" and "installing …" ortet boot knows what an image saves.
            step(("waiting for" if s["driver"] == "extension" else "loading") + " the NVIDIA driver", lambda: self.gpu.driver(s))
            step(("installing" if s.get("toolkit") else "finding") + " NVIDIA's container toolkit", lambda: self.gpu.toolkit(s))
        step("setting up the temporary disk", self.temporary_disk)
        step("writing settings", self.files)
        if self.server:
            self.tailnet.configure(s)
            step("writing k3s's settings", self.configure_server)
        else:
            step("waiting for the server", self.configure_agent)

    def mount_state(self):
        """Mounts the state disk, LUN 0, and binds what k3s keeps to its folders."""
        disk = path(STATE)
        if not os.path.ismount(disk):
            links = [path("/dev/disk/azure/" + d) for d in ("data/by-lun/0", "scsi1/lun0")]
            device = next((os.path.realpath(d) for d in links if os.path.exists(d)), None)
            if not device:
                raise RuntimeError("no disk at LUN 0 yet; ortet cluster up attaches disk state")
            state.prepare(device, run, log)
            os.makedirs(disk, exist_ok=True)
            run("mount", "-t", "ext4", device, disk)
        for name, target in FOLDERS.items():
            os.makedirs(disk + "/" + name, mode=0o700, exist_ok=True)
            os.makedirs(path(target), exist_ok=True)
            if not os.path.ismount(path(target)):
                run("mount", "--bind", disk + "/" + name, path(target))
        self.host_keys(STATE + "/ssh/")

    def host_keys(self, kept):
        """A server that was made again has the SSH host keys that clients know."""
        changed = False
        for source, target in (kept, "/etc/ssh/"), ("/etc/ssh/", kept):  # the kept ones win
            for key in sorted(glob.glob(path(source) + "ssh_host_*_key")) + sorted(glob.glob(path(source) + "ssh_host_*_key.pub")):
                with open(key) as f:
                    changed |= write(target + os.path.basename(key), f.read(), 0o644 if key.endswith(".pub") else 0o600) and source == kept
        if changed:  # not every system has the unit
            subprocess.run(["systemctl", "try-restart", "--no-block", "ssh.service"])

    def files(self):
        """Writes the files of the settings, and deletes those that left the list."""
        s, listed = self.settings, "/etc/ortet/files.json"
        now = {f["path"]: f for f in s.get("files", [])}
        before = json.load(open(path(listed))) if os.path.exists(path(listed)) else {}
        units = {name: f.get("restart", []) for name, f in now.items()}
        write(listed, json.dumps({**before, **units}))  # also what an interrupted run writes is deleted later
        for name, f in now.items():
            write(name, f["content"], int(f["mode"], 8), units[name])
        for name in set(before) - set(now):
            if os.path.lexists(path(name)):
                note(before[name])
                os.unlink(path(name))
        write(listed, json.dumps(units))
        zone = s.get("timeZone")
        if zone and os.path.exists(path("/usr/share/zoneinfo/" + zone)):
            if os.path.lexists(path("/etc/localtime")):
                os.unlink(path("/etc/localtime"))
            os.symlink("/usr/share/zoneinfo/" + zone, path("/etc/localtime"))
            write("/etc/timezone", zone + "\n", 0o644)

    def settle(self):
        """Restarts what runs by what changed, at once: a socket does not start while its
        service runs. k3s takes its time, and is not waited for."""
        for command in [["daemon-reload"], ["try-restart", "--no-block", *noted()]] if noted() else []:
            try:
                run("systemctl", *command)
            except Exception as e:  # not every system has each of them
                log(str(e))
        write(RESTARTS, "")
        write(APPLIED, self.digest)

    def apply(self):
        """Applies settings that changed while the server runs."""
        self.load()
        if open(path(APPLIED)).read() == self.digest:
            return
        log("applying settings " + self.digest)
        write(APPLIED, "")  # the earlier ones too have to be applied, if they come back
        self.install(once)
        self.settle()

    def packages(self):
        """Installs what is missing. Images that have it need no package mirror."""
        where = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        missing = [p for program, names in self.settings["packages"].items()
                   if not shutil.which(program, path=where) for p in names]
        missing += [p for p in self.settings.get("extraPackages", []) if not installed(p)]
        if missing:
            environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
            run("apt-get", "update", "-q", env=environment)
            run("apt-get", "install", "-q", "-y", "-o", "DPkg::Lock::Timeout=600", *missing, env=environment)

    def mount(self):
        if not mounted(path("/srv")):
            self.mount_with(self.share_key())

    def share_key(self):
        account = self.storage + "Microsoft.Storage/storageAccounts/" + self.settings["account"]
        return self.arm("POST", account + "/listKeys", STORAGE_API)["keys"][0]["value"]

    def mount_with(self, key, how=""):
        """Mounts the share, and notes the key if the share answers."""
        s = self.settings
        credentials = "/run/ortet/share-credentials"
        write(credentials, "username=%s\npassword=%s\n" % (s["account"], key))
        os.makedirs(path("/srv"), exist_ok=True)
        try:
            user = pwd.getpwnam(s["user"])
            owner = (user.pw_uid, user.pw_gid)
        except KeyError:
            owner = (1000, 1000)
        options = "vers=3.1.1,credentials=%s,noperm,dir_mode=0777,file_mode=0666,uid=%d,gid=%d,mfsymlinks,serverino"
        share = "//%s.file.%s/%s" % (s["account"], self.suffix, s["share"])
        run("mount", "-t", "cifs", share, path("/srv"), "-o", how + options % ((path(credentials),) + owner))
        if answers(path("/srv")):
            write(SHARE_KEY, hashlib.sha256(key.encode()).hexdigest())

    def keep_share(self):
        """Mounts the share again if it is dead and the account has another key. From all else,
        such as an outage, SMB recovers by itself, and so do pods."""
        problem = ""
        try:
            if not (mounted(path("/srv")) and answers(path("/srv"))):
                if not self.cloud:
                    self.discover()
                self.mount_again(self.share_key())
        except Exception as e:
            problem = "the share at /srv does not answer: %s" % e
        if problem != text_of(SHARE_PROBLEM):
            write(SHARE_PROBLEM, problem)
            log(problem or "the share at /srv answers")

    def mount_again(self, key):
        if mounted(path("/srv")):
            if text_of(SHARE_KEY) == hashlib.sha256(key.encode()).hexdigest():
                raise RuntimeError("its key is the account's, so it is left as it is")
            try:  # Linux 6.9 and later change the key of a dead mount in place, also for pods
                self.mount_with(key, "remount,")
            except RuntimeError as e:
                log(str(e))
            if answers(path("/srv")):
                return
            run("umount", "--lazy", path("/srv"))
        self.mount_with(key)

    def temporary_disk(self):
        """Swap and scratch space on Azure's temporary disk, which many sizes lack."""
        swap, scratch = self.settings.get("swapGB", 0), self.settings.get("scratch", False)
        if not swap and not scratch:
            return
        devices = [os.path.realpath("/dev/disk/" + d) for d in ("azure/resource-part1", "cloud/azure_resource-part1")]
        with open("/proc/mounts") as f:
            mounts = [line.split()[:2] for line in f]
        found = next((m[1] for m in mounts if m[0] in devices), None)
        if not found:
            log("this size has no temporary disk, or it is not mounted: no swap and no scratch space")
            return
        if swap:
            file = found + "/ortet.swap"
            if file not in open("/proc/swaps").read():
                run("fallocate", "-l", "%dG" % swap, file)
                os.chmod(file, 0o600)
                run("mkswap", file)
                run("swapon", file)
        if scratch:
            os.makedirs(found + "/scratch", exist_ok=True)
            os.chmod(found + "/scratch", 0o1777)
            if found != "/mnt" and not os.path.lexists("/mnt/scratch"):
                os.symlink(found + "/scratch", "/mnt/scratch")

    def configure_server(self):
        s = self.settings
        names = [s["serverAddress"], *self.public_names(), (s.get("tailnet") or {}).get("hostname")]
        config = {
            "node-name": s["serverName"],
            "node-ip": s["serverAddress"],
            "tls-san": [n for n in names if n],
            "cluster-cidr": s["pods"],
            "service-cidr": s["services"],
            "write-kubeconfig-mode": "0600",
        }
        # JSON's scalars and lists are YAML.
        write("/etc/rancher/k3s/config.yaml", "".join("%s: %s\n" % (k, json.dumps(v)) for k, v in config.items()),
              units=["k3s.service"])
        azure = dict(self.where, useManagedIdentityExtension=True, userAssignedIdentityID=self.identity)
        if os.environ.get("ORTET_RESOURCE_MANAGER"):
            azure["cloud"] = "AzureStackCloud"
            azure["resourceManagerEndpoint"] = self.cloud
        write("/etc/ortet/azure.json", json.dumps(azure, indent=1) + "\n", 0o644)
        make_admission_user()
        self.configure_admission()
        self.manifests()
        if not os.path.lexists(path("/usr/local/bin/kubectl")):
            os.symlink("k3s", path("/usr/local/bin/kubectl"))

    def public_names(self):
        """Returns the public address and its name. Without one they are those of before, since
        another list would restart k3s."""
        kept = STATE + "/public-names"
        try:  # the metadata service does not know Standard public addresses
            public = self.arm("GET", self.network + "publicIPAddresses/" + self.settings["serverName"], NETWORK_API)["properties"]
        except RuntimeError as e:
            if "HTTP 404" not in str(e) or not os.path.exists(path(kept)):
                raise
            return text_of(kept).split()
        names = [n for n in (public.get("ipAddress"), (public.get("dnsSettings") or {}).get("fqdn")) if n]
        write(kept, " ".join(names))
        return names

    def login(self):
        """Logs the server in to its tailnet, and publishes that at once."""
        key = sys.stdin.read(4096)
        try:
            self.discover()
            self.load()
            self.tailnet.configure(self.settings)
            self.tailnet.login(self.settings, key)
            self.tag(self.tailnet.tags(self.settings, self.machine["tags"]))
        except Exception as e:
            sys.exit(str(e))

    def manifests(self):
        """Puts Ortet's own manifests beside those of the settings, and deletes those of
        earlier settings. Nothing else that a share holds gets to k3s: agents write there."""
        keep = [m["path"] for m in self.settings.get("manifests", [])]
        for file in glob.glob(path("/usr/local/lib/ortet/manifests/*.yaml")):
            keep.append(MANIFESTS + os.path.basename(file))
            with open(file) as f:
                write(keep[-1], f.read())
        for file in glob.glob(path(MANIFESTS + "ortet-*.yaml")):
            if file not in map(path, keep):
                os.unlink(file)

    def pools(self):
        """Lists the ids of the cluster's scale sets. Lists of ARM give names of groups in
        another letter case, so ids are made from names."""
        s, found, page = self.settings, [], self.compute + "virtualMachineScaleSets"
        while page:
            answer = self.arm("GET", page, COMPUTE_API)
            found += [p["name"] for p in answer["value"] if (p.get("tags") or {}).get(s["tags"]["cluster"]) == s["cluster"]]
            page = answer.get("nextLink")
        return [self.compute + "virtualMachineScaleSets/" + name for name in sorted(found)]

    def configure_admission(self):
        """Writes which pools' machines are admitted. Without a pool it leaves what is there:
        the admission server needs one, and waits."""
        address = self.settings["serverAddress"]
        arguments = ["--tls-san=" + address, "--api-server=https://%s:6443" % address] + ["--pool=" + p for p in self.pools()]
        if len(arguments) > 2:
            write("/run/ortet/admission.env", "ORTET_ADMISSION_ARGS=%s\n" % " ".join(arguments), units=["ortet-admission.service"])

    def configure_agent(self):
        s = self.settings
        tag = s["tags"]["caHash"]
        ca = (self.arm("GET", self.vm, COMPUTE_API).get("tags") or {}).get(tag)
        if not ca:
            raise RuntimeError("VM %s has no tag %s yet; it writes the tag when its k3s runs" % (s["serverName"], tag))
        join = {"servers": ["https://%s:8443" % s["serverAddress"]], "caHash": ca, "distribution": "k3s"}
        for name in ("nodeLabels", "nodeTaints", "registries"):
            if s.get(name):
                join[name] = s[name]
        write("/etc/ortet/join.json", json.dumps(join, indent=1) + "\n", 0o644)

    def publish(self):
        """Publishes the server's tags and applies new settings, as long as it runs."""
        self.forever("asking Azure about this machine", self.discover)
        signal.signal(signal.SIGTERM, self.stopped)
        while True:
            self.forever("", self.publish_once)
            self.said = self.published = None
            self.label_nodes()
            self.keep_share()
            before, self.damage = self.damage, state.copy(path(DATASTORE))
            if self.damage not in ("", before):
                log(self.damage)
            if "ORTET_ONCE" in os.environ:
                return
            for _ in range(4):
                time.sleep(15)
                if self.changed():
                    break

    def stopped(self, *_):
        """Takes "ready" back when the server goes down."""
        self.state("stopped")
        sys.exit(0)

    def changed(self):
        """Reports whether the VM has other userData than what was read."""
        try:
            return self.read_settings()[1] != self.digest
        except Exception:
            return True  # load says why

    def publish_once(self):
        failed = None
        for what, do in (
            ("applying the settings", self.apply),  # also those that correct a k3s that does not start
            ("starting k3s and the admission server", renew_admission_token),  # also while settings are wrong for hours
        ):
            try:
                once(what, do)
            except Exception as e:
                failed = failed or e
        if failed:
            raise failed
        once("starting k3s and the admission server", self.ready)

    def ready(self):
        """Writes the tags, once k3s and the admission server run."""
        s = self.machine["tags"]
        self.configure_admission()
        if not os.path.exists(path("/run/ortet/admission.env")):
            raise RuntimeError("no scale set has tag %s=%s yet" % (s["cluster"], self.machine["cluster"]))
        if noted():
            run("systemctl", "restart", "ortet-admission.service")
            write(RESTARTS, "")
            log("the admission server was restarted with another list of pools")
        if os.statvfs(path(STATE)).f_bavail == 0:
            raise RuntimeError("the state disk is full; a larger spec.server.stateGB makes it grow")
        version = self.node()
        self.listening()
        ca = run(path("/usr/local/bin/ortet"), "admission", "--print-ca-hash",
                 "--kubeconfig", path(ADMISSION + "kubeconfig"))
        run("systemctl", "is-active", "--quiet", "ortet-admission.service")
        with open(path("/etc/ssh/ssh_host_ed25519_key.pub")) as f:
            key = " ".join(f.read().split()[:2])
        self.tailnet.configure(self.settings)  # also what failed before
        tags = {s["caHash"]: ca, s["sshHostKey"]: key, s["k3s"]: version, s["settings"]: open(path(APPLIED)).read(), s["boot"]: "ready",
                s["certificates"]: certificates_end(),
                s["datastore"]: (self.damage or state.repaired(path(DATASTORE)))[:256],
                **self.tailnet.tags(self.settings, s)}
        has = self.arm("GET", self.vm, COMPUTE_API).get("tags") or {}
        tags = {k: v for k, v in tags.items() if has.get(k, "") != v}
        if tags:
            self.tag(tags)
            log("published: " + ", ".join(sorted(tags)))

    def node(self):
        """Returns the version of k3s that the server's own Node runs, if the Node is Ready
        in this boot and its kubelet lives: each of these alone was seen without the rest."""
        name = self.machine["serverName"]
        run("systemctl", "is-active", "--quiet", "k3s.service")
        since = run("systemctl", "show", "--value", "--property", "ExecMainStartTimestampMonotonic", "k3s.service")
        found = json.loads(run(path("/usr/local/bin/k3s"), "kubectl", "get", "--namespace", "kube-node-lease", "--output", "json",
                               "node/" + name, "lease/" + name))["items"]
        node, lease = (next(o for o in found if o["kind"] == kind) for kind in ("Node", "Lease"))
        ready = next((c["status"] for c in node["status"].get("conditions", []) if c["type"] == "Ready"), "")
        with open(path("/proc/sys/kernel/random/boot_id")) as f:
            boot = f.read().strip()
        renewed = datetime.datetime.strptime(lease["spec"]["renewTime"][:19] + "+0000", "%Y-%m-%dT%H:%M:%S%z")
        age = (datetime.datetime.now(datetime.timezone.utc) - renewed).total_seconds()
        # A kubelet renews each 10 s; that of before k3s restarted does not count.
        if ready != "True" or node["status"]["nodeInfo"]["bootID"] != boot or age > min(time.monotonic() - int(since or 0) / 1e6, 40):
            raise RuntimeError("Node %s is not Ready in this boot" % name)
        # After an upgrade the Node is Ready before its kubelet reports the new version. One
        # without "+k3s1" is not of k3s's own build.
        version, words = node["status"]["nodeInfo"]["kubeletVersion"], run(path("/usr/local/bin/k3s"), "--version").split()
        if words[:2] == ["k3s", "version"] and version not in (words[2], words[2].split("+")[0]):
            raise RuntimeError("Node %s reports %s, and k3s is %s" % (name, version, " ".join(words[2:3])))
        return version

    def listening(self):
        """Fails until sshd listens on its port: only then another one is closed."""
        try:
            run("systemctl", "is-enabled", "--quiet", "ssh.socket", "ssh.service")
        except RuntimeError:
            return  # another unit of sshd, or none
        import tailnet
        port = tailnet.ssh_port(self.settings)
        for table in "/proc/net/tcp", "/proc/net/tcp6":
            if os.path.exists(path(table)):
                with open(path(table)) as f:
                    for fields in map(str.split, f):
                        if len(fields) > 3 and fields[3] == "0A" and fields[1].endswith(":%04X" % port):
                            return
        raise RuntimeError("sshd does not listen on port %d yet" % port)

    def label_nodes(self):
        """Gives agents a role; a kubelet may not label its own Node so."""
        try:
            without = "!node-role.kubernetes.io/control-plane,!node-role.kubernetes.io/worker"
            run(path("/usr/local/bin/k3s"), "kubectl", "label", "nodes", "--selector", without,
                "node-role.kubernetes.io/worker=true")
        except Exception as e:
            if "no resources found" not in str(e).lower() and str(e) != self.unlabelled:
                log("cannot label nodes: %s" % e)
                self.unlabelled = str(e)


def certificates_end():
    """Returns when the first of k3s's certificates ends, "" without openssl. k3s renews
    them when it starts."""
    ends = []
    if shutil.which("openssl"):
        for folder in "server/tls", "agent":
            for file in glob.glob(path("/var/lib/rancher/k3s/" + folder + "/*.crt")):
                try:
                    end = run("openssl", "x509", "-noout", "-enddate", "-in", file)
                    ends.append(datetime.datetime.strptime(end, "notAfter=%b %d %H:%M:%S %Y GMT"))
                except (RuntimeError, ValueError):
                    pass  # no reason not to be ready
    return min(ends).strftime("%Y-%m-%dT%H:%M:%SZ") if ends else ""


def make_admission_user():
    """Makes the admission server's user, and the folder that only it and root may read."""
    try:
        run("id", "ortet-admission")
    except RuntimeError:
        run("useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", "ortet-admission")
    os.makedirs(path(ADMISSION), exist_ok=True)
    run("chgrp", "ortet-admission", path(ADMISSION))
    os.chmod(path(ADMISSION), 0o2750)  # new files have its group


def renew_admission_token():
    """Gives the admission server a token of its ServiceAccount, so that RBAC and its own
    policies bind it. client-go reads a new one by itself."""
    token = path(ADMISSION + "token")
    first = not os.path.exists(token)
    if not first and abs(time.time() - os.stat(token).st_mtime) < TOKEN_AGE:
        return
    with open(path("/var/lib/rancher/k3s/server/tls/server-ca.crt"), "rb") as f:
        ca = base64.b64encode(f.read()).decode()
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "clusters": [{"name": "default", "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority-data": ca}}],
        "users": [{"name": "default", "user": {"tokenFile": token}}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
    }
    write(ADMISSION + "kubeconfig", json.dumps(kubeconfig, indent=1) + "\n", 0o640)
    write(ADMISSION + "token", run(path("/usr/local/bin/k3s"), "kubectl", "create", "token", "ortet-admission",
                                   "--namespace=ortet-system", "--duration=1h"), 0o640, ["ortet-admission.service"] if first else [])


def mounted(folder):
    """Reports whether something is mounted, without asking it."""
    return any(line.split()[1] == folder for line in text_of("/proc/mounts").splitlines())


def answers(folder):
    """Reports whether a mount answers. A dead one may block for ever what asks it."""
    asks = subprocess.Popen(["stat", "--file-system", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return asks.wait(timeout=min(30, PAUSE * 250)) == 0
    except subprocess.TimeoutExpired:
        asks.kill()  # its end is not awaited
        return False


def installed(package):
    done = subprocess.run(["dpkg-query", "--show", "--showformat=${db:Status-Status} ", package], capture_output=True, text=True)
    return "installed" in done.stdout.split()


def digest(file):
    h = hashlib.sha256()
    with open(file, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            h.update(block)
    return h.hexdigest()


def open_regular(file, room):
    """Opens a file of the share. Others could put a pipe there, a file that fills the disk,
    or a link to a device, which has no end, or to a file of this machine, whose hash a tag
    would show."""
    fd = os.open(path("/"), os.O_RDONLY)
    for name in filter(None, file.split("/")):
        above = fd
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=above)
        except OSError as e:
            if e.errno == errno.ELOOP:
                raise OSError("%s is a link; links on the share are not followed" % name) from None
            raise
        finally:
            os.close(above)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > room:
        os.close(fd)
        raise OSError("no regular file, or larger than half of the disk's free space")
    return open(fd, "rb")


def fetch(artifact):
    """Fetches a file to its path with .part, unless a valid one is there. Returns whether
    it did."""
    target, url, want = path(artifact["path"]), artifact["url"], artifact["sha256"]
    mode, temporary = int(artifact["mode"], 8), target + ".part"
    for file in target, temporary:
        if os.path.exists(file) and digest(file) == want:
            os.chmod(file, mode)
            return file == temporary
    os.makedirs(os.path.dirname(target), exist_ok=True)
    h = hashlib.sha256()
    try:
        if url.startswith("file://"):
            source = open_regular(urllib.parse.unquote(url[len("file://"):]), shutil.disk_usage(os.path.dirname(target)).free / 2)
        else:
            source = urllib.request.urlopen(url, timeout=60)
        with source, open(temporary, "wb") as out:
            for block in iter(lambda: source.read(1 << 20), b""):
                h.update(block)
                out.write(block)
    except OSError as e:
        if os.path.exists(temporary):
            os.unlink(temporary)  # which may be what filled the disk
        raise RuntimeError("GET %s: %s" % (url.split("?")[0], e)) from None
    if h.hexdigest() != want:
        os.unlink(temporary)
        raise RuntimeError("checksum of %s does not match: want %s, got %s" % (url.split("?")[0], want, h.hexdigest()))
    os.chmod(temporary, mode)
    return True


if __name__ == "__main__":
    machine = Machine()
    {"publish": machine.publish, "share": machine.keep_share, "login": machine.login}.get("".join(sys.argv[1:]), machine.boot)()
