"""The server of an Ortet cluster in a tailnet, for boot.py: tailscaled, its login, and what is
published of it.

Its state is on the state disk: tailscaled.state (the login), cluster (whose it is), login
(tags and coordination server of the login). The key of a login is in none of them.
"""
import json
import os
import shutil
import subprocess
import tarfile
import time
import urllib.request

FOLDER = "/var/lib/ortet/state/tailscale/"
PROGRAMS = "/usr/local/lib/ortet/tailscale/"
ARCHIVE = "/usr/local/lib/ortet/tailscale.tgz"
UNIT = "ortet-tailscaled.service"
GROUP = "ortet-tailscale"  # of the unit alone
RULES = PROGRAMS + "rules.nft"
OUT_OF_SYNC = "OutOfSync"  # logged in, and not known to the coordination server, or it is away
SSHD = "/etc/ssh/sshd_config.d/50-ortet.conf"

# Without a network device, tailscaled connects to 127.0.0.1 at the port that the tailnet asks
# for. Of these, k3s has some without authentication.
TABLE = """table inet ortet_tailnet
delete table inet ortet_tailnet
table inet ortet_tailnet {
	chain output {
		type filter hook output priority filter; policy accept;
		meta skgid "%s" ip daddr 127.0.0.1 tcp dport != { %d, 6443 } ct state new reject with tcp reset
		meta skgid "%s" ip daddr 127.0.0.1 meta l4proto != tcp drop
	}
}
"""


def ssh_port(settings):
    return next((int(f["content"].split()[1]) for f in settings.get("files", []) if f["path"] == SSHD), 22)


class Tailnet:
    def __init__(self, root, run, pause):
        self.path, self.run, self.pause = lambda name: root + name, run, pause
        self.problem = ""

    def text_of(self, name):
        return open(self.path(name)).read() if os.path.exists(self.path(name)) else ""

    def note(self, name, text):
        with open(os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(text)

    def configure(self, settings):
        """Runs tailscaled as the settings say. What is wrong is published and ends nothing: the
        server is reached without it, too."""
        try:
            self.problem = ""
            self.configured(settings, settings["cluster"])
        except Exception as e:
            self.problem = "tailscaled is not set up: %s" % e

    def configured(self, settings, cluster):
        if not settings.get("tailnet"):
            if os.path.exists(self.path(PROGRAMS)):
                self.run("systemctl", "stop", UNIT)
                shutil.rmtree(self.path(PROGRAMS))
            return
        if self.text_of(FOLDER + "cluster") != cluster:  # a backup of another one, which may still run
            self.run("systemctl", "stop", UNIT)
            shutil.rmtree(self.path(FOLDER), ignore_errors=True)
            os.makedirs(self.path(FOLDER), mode=0o700)
            self.note(FOLDER + "cluster", cluster)
        os.makedirs(self.path(PROGRAMS), exist_ok=True)
        self.run("groupadd", "--force", "--system", GROUP)
        self.note(RULES, TABLE % (GROUP, ssh_port(settings), GROUP))
        self.run("nft", "-f", self.path(RULES))  # each time, since nftables.service flushes all rules
        want = next(a["sha256"] for a in settings["artifacts"] if a["name"] == "tailscale")
        if self.text_of(PROGRAMS + "archive") != want:
            with tarfile.open(self.path(ARCHIVE)) as archive:
                for program in "tailscale", "tailscaled":
                    member = next((m for m in archive if m.isfile() and os.path.basename(m.name) == program), None)
                    if not member:
                        raise RuntimeError("artifact tailscale has no program %s" % program)
                    part = self.path(PROGRAMS + program + ".part")
                    with archive.extractfile(member) as source, open(part, "wb") as target:
                        shutil.copyfileobj(source, target)
                    os.chmod(part, 0o755)
                    os.replace(part, self.path(PROGRAMS + program))
            self.run("systemctl", "restart", "--no-block", UNIT)
            self.note(PROGRAMS + "archive", want)
        self.run("systemctl", "start", "--no-block", UNIT)

    def tailscale(self, *arguments, **options):
        return self.run(self.path(PROGRAMS + "tailscale"), "--socket=" + self.path("/run/ortet-tailscaled/socket"), *arguments, **options)

    def status(self):
        """Returns tailscaled's. It stays "Running" where an admin has removed the server; a
        connection that tailscaled makes again takes it some seconds."""
        for _ in range(5):
            found = json.loads(self.tailscale("status", "--json", "--peers=false", timeout=10))
            if found["BackendState"] != "Running" or (found.get("Self") or {}).get("Online") is not False:
                return found
            time.sleep(self.pause)
        found["BackendState"] = OUT_OF_SYNC
        return found

    def tags(self, settings, names):
        """Returns the tags that are published; all are empty without access.tailscale."""
        wanted, state, me = settings.get("tailnet"), self.problem, {}
        if wanted and not state:
            try:
                found = self.status()
                state, me = found["BackendState"], found.get("Self") or {}
                if state == "Running" and me.get("HostName", "").lower() != wanted["hostname"]:
                    self.tailscale("set", "--hostname=" + wanted["hostname"], timeout=10)
            except Exception as e:
                state = "tailscaled does not answer: %s" % e
        addresses = me.get("TailscaleIPs") or []
        address = next((a for a in addresses if "." in a), "".join(addresses[:1]))
        expiry = me.get("KeyExpiry") or ""
        values = {"tailnet": state, "tailnetName": me.get("DNSName", "").rstrip("."), "tailnetAddress": address,
                  "tailnetExpiry": "" if expiry.startswith("0001") else expiry}
        return {names[n]: v[:256] for n, v in values.items()}

    def login(self, settings, key):
        """Logs tailscaled in, with a key that only its standard input has. A login by the
        present settings stays: a key may be valid once."""
        wanted = settings.get("tailnet")
        if not wanted:
            raise RuntimeError("the server's settings have no access.tailscale")
        if self.problem:
            raise RuntimeError(self.problem)
        login = json.dumps([wanted.get("tags", []), wanted.get("loginServer", "")])
        state = self.status()["BackendState"]
        if self.text_of(FOLDER + "login") == login and state not in ("NeedsLogin", "NeedsMachineAuth", "Stopped"):
            if state == "Running":
                return
            kept = "the server has a login, which needs no key: its coordination server "
            if state != OUT_OF_SYNC:  # a login now would wait, and lose the one that is there
                raise RuntimeError(kept + "has not answered yet (%s)" % state)
            try:  # if it answers, it knows the server no more
                urllib.request.urlopen((wanted.get("loginServer") or "https://controlplane.tailscale.com").rstrip("/") + "/key?v=100", timeout=10).close()
            except OSError as e:
                raise RuntimeError(kept + "does not answer: %s" % e) from None
        command = ["up", "--auth-key=file:/dev/stdin", "--force-reauth", "--reset", "--accept-dns=false", "--netfilter-mode=off",
                   "--timeout=60s", "--hostname=" + wanted["hostname"], "--advertise-tags=" + ",".join(wanted.get("tags", []))]
        if wanted.get("loginServer"):
            command.append("--login-server=" + wanted["loginServer"])
        try:
            self.tailscale(*command, input=key, timeout=90)
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            raise RuntimeError(str(e).replace(key.strip(), "(key)")) from None
        self.note(FOLDER + "login", login)
