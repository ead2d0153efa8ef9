"""The state of an Ortet cluster's server, for boot.py: its disk, and SQLite's file on it.

All of SQLite's files are in k3s's folder: state.db, copy-TIME.db (the last two, checked),
damaged-TIME-copy-TIME (what a copy took the place of).
"""
import glob
import os
import shutil
import sqlite3
import subprocess
import time

HOUR = 3600


def prepare(device, run, log):
    """Checks the file system of the state disk, and lets it grow with the disk. It formats
    only a disk that is blank."""
    found = subprocess.run(["blkid", "-p", "-o", "export", device], capture_output=True, text=True).stdout.split()
    if "TYPE=ext4" in found and "LABEL=ortet-state" in found:
        checked = subprocess.run(["fsck.ext4", "-f", "-p", device], capture_output=True, text=True)
        if checked.returncode > 1:  # 1: corrected
            raise RuntimeError("fsck.ext4 -f -p: exit code %d: %s" % (checked.returncode, " ".join(checked.stdout.split())[-150:]))
    else:
        other = " ".join(found) or " ".join(run("wipefs", "--no-act", "--noheadings", device).split())
        if other or not blank(device):
            raise RuntimeError("the disk at LUN 0 is neither blank nor a state disk: " + (other or "it has data without a signature"))
        log("formatting the state disk, which is blank")
        run("mkfs.ext4", "-q", "-L", "ortet-state", device)
    run("resize2fs", device)  # it wants the check of before


def blank(device):
    """A disk that Azure has just made is all zeros: reads its first MiB, and 64 KiB of each
    16 MiB and of its end."""
    with open(device, "rb") as f:
        size = f.seek(0, os.SEEK_END)
        for at in [*range(0, 1 << 20, 1 << 16), *range(0, size, 16 << 20), max(0, size - (1 << 16))]:
            f.seek(at)
            if f.read(1 << 16).strip(b"\0"):
                return False
    return True


def stamp(seconds):
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(seconds))


def damage(uri):
    """Returns what is wrong in a database. A disk that is full or cannot be read is no
    damage, and an error."""
    c = sqlite3.connect(uri, uri=True)
    try:
        found = c.execute("PRAGMA quick_check(1)").fetchone()[0]
        return "" if found == "ok" else " ".join(found.split())
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as e:
        return str(e)
    finally:
        c.close()


def copies(folder):
    return sorted(glob.glob(folder + "/copy-*.db"))


def copy(folder):
    """Copies state.db each hour while k3s runs. Returns what is wrong in it, or with the copy."""
    try:
        return checked_copy(folder)
    except Exception as e:
        return "cannot copy state.db: %s" % e


def checked_copy(folder):
    db, part = folder + "/state.db", folder + "/copy.part"
    if not os.path.exists(db) or any(abs(time.time() - os.stat(c).st_mtime) < HOUR for c in copies(folder)):
        return ""
    space = os.statvfs(folder)
    if space.f_bavail * space.f_frsize < 2 * os.stat(db).st_size:
        raise OSError("the state disk has no room for it")
    for old in glob.glob(part + "*"):
        os.unlink(old)
    source, target = sqlite3.connect("file:%s?mode=ro" % db, uri=True), sqlite3.connect(part)
    try:
        source.backup(target)  # in one step: writers do not restart it
    finally:
        target.close()
        source.close()
    found = damage("file:%s?immutable=1" % part)
    if found:
        os.unlink(part)
        return "state.db is damaged (%s); the next boot takes its last good copy" % found[:100]
    os.replace(part, "%s/copy-%s.db" % (folder, stamp(os.stat(part).st_mtime)))
    for old in copies(folder)[:-2]:
        os.unlink(old)
    return ""


def repair(folder):
    """Has the last good copy take the place of a damaged state.db, before k3s starts. An
    interrupted exchange goes on: without state.db k3s would make a new cluster."""
    db, new = folder + "/state.db", folder + "/state.db.new"
    if not os.path.exists(new):
        found = os.path.exists(db) and damage("file:%s?mode=rw" % db)
        if not found:
            return
        good = next((c for c in reversed(copies(folder)) if not damage("file:%s?immutable=1" % c)), None)
        if not good:
            raise RuntimeError("state.db is damaged (%s), and it has no good copy; ortet cluster restore NAME takes a backup" % found[:100])
        shutil.copy2(good, new + ".part")
        with open(new + ".part", "rb") as f:
            os.fsync(f.fileno())
        os.replace(new + ".part", new)
    aside = "%s/damaged-%s-copy-%s" % (folder, stamp(time.time()), stamp(os.stat(new).st_mtime))
    os.makedirs(aside)
    for name in ("state.db-wal", "state.db-shm", "state.db"):
        if os.path.exists(folder + "/" + name):
            os.rename(folder + "/" + name, aside + "/" + name)
    os.rename(new, db)


def repaired(folder):
    """Says which copy serves, as long as the damaged files are there."""
    aside = sorted(glob.glob(folder + "/damaged-*"))
    if not aside:
        return ""
    _, then, _, of = os.path.basename(aside[-1]).split("-")
    return "state.db was damaged at %s; the copy of %s serves. Look at and delete db/%s" % (then, of, os.path.basename(aside[-1]))
