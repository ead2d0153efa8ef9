package recipe_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/k3s/recipe"
)

const datastore = "/var/lib/rancher/k3s/server/db/"

// kine writes rows as k3s does, and ends without closing the database, as a machine that
// loses its power. It leaves the last rows in the write-ahead log.
const kine = `
import os, sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("PRAGMA journal_mode=WAL")
c.execute("CREATE TABLE IF NOT EXISTS kine (id INTEGER PRIMARY KEY, name TEXT, value BLOB)")
for i in range(int(sys.argv[2])):
    c.execute("INSERT INTO kine (name, value) VALUES (?, ?)", (sys.argv[3], b"x" * 3000))
os._exit(0)
`

func python(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command("python3", append([]string{"-c", program}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *world) writeRows(name string) {
	w.t.Helper()
	if err := os.MkdirAll(w.root+datastore, 0o700); err != nil {
		w.t.Fatal(err)
	}
	python(w.t, kine, w.root+datastore+"state.db", "400", name)
}

// rows are the names in a database and how many of each.
func rows(t *testing.T, db string) string {
	t.Helper()
	return python(t, `import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("SELECT group_concat(name || n, ' ') FROM (SELECT name, count(*) AS n FROM kine GROUP BY name)").fetchone()[0])`, db)
}

// reboot is another boot of the machine.
func (w *world) reboot() string {
	w.t.Helper()
	_ = os.Remove(w.root + "/run/ortet/booted")
	return w.boot()
}

func (w *world) copies() []string {
	found, _ := filepath.Glob(w.root + datastore + "copy-*.db")
	slices.Sort(found)
	return found
}

// age makes all copies older.
func (w *world) age(by time.Duration) {
	w.t.Helper()
	for _, c := range w.copies() {
		i, err := os.Stat(c)
		if err != nil {
			w.t.Fatal(err)
		}
		older := i.ModTime().Add(-by)
		if err := os.Rename(c, w.root+datastore+"copy-"+older.UTC().Format("20060102T150405Z")+".db"); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, c := range w.copies() {
		at, err := time.Parse("20060102T150405Z", strings.TrimSuffix(strings.TrimPrefix(filepath.Base(c), "copy-"), ".db"))
		if err != nil || os.Chtimes(c, at, at) != nil {
			w.t.Fatal(err)
		}
	}
}

// damage has the write-ahead log end in the middle of a frame, and overwrites pages.
func (w *world) damage() {
	w.t.Helper()
	wal := w.root + datastore + "state.db-wal"
	i, err := os.Stat(wal)
	if err != nil || os.Truncate(wal, i.Size()/2+100) != nil {
		w.t.Fatalf("no write-ahead log: %v", err)
	}
	f, err := os.OpenFile(w.root+datastore+"state.db", os.O_RDWR, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	for page := int64(1); page < 20; page++ { // each page of the log that was not cut replaces its page
		if _, err := f.WriteAt([]byte(strings.Repeat("\xaa", 4096)), page*4096); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestSQLiteCopyServesAfterDamage(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	w.writeRows("first")
	w.boot("publish")
	w.boot("publish")
	if got := w.copies(); len(got) != 1 || rows(t, got[0]) != "first400" {
		t.Fatalf("copies within an hour are %v", got)
	}
	for _, name := range []string{"second", "third"} {
		w.age(2 * time.Hour)
		w.writeRows(name)
		w.boot("publish")
	}
	good := w.copies()
	if len(good) != 2 || rows(t, good[0]) != "first400 second400" || rows(t, good[1]) != "first400 second400 third400" {
		t.Fatalf("copies of three hours are %v", good)
	}

	w.reboot()
	if w.boot("publish"); w.tag(recipe.TagDatastore) != "" || rows(t, w.root+datastore+"state.db") != "first400 second400 third400" {
		t.Fatalf("a sound database: tag %q", w.tag(recipe.TagDatastore))
	}
	w.writeRows("lost")
	w.damage()
	out := w.reboot()
	if got := rows(t, w.root+datastore+"state.db"); got != "first400 second400 third400" {
		t.Errorf("after the boot the database has %s", got)
	}
	if !strings.Contains(out, "state.db was damaged at ") {
		t.Errorf("the boot does not say so:\n%s", out)
	}
	aside, _ := filepath.Glob(w.root + datastore + "damaged-*")
	if len(aside) != 1 {
		t.Fatalf("the damaged files are in %v", aside)
	}
	of := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(good[1]), "copy-"), ".db")
	if want := "; the copy of " + of + " serves. Look at and delete db/" + filepath.Base(aside[0]); !strings.HasSuffix(w.tag(recipe.TagBoot), want) && !strings.HasSuffix(w.tag(recipe.TagDatastore), want) {
		t.Errorf("the boot state is %q, tag datastore %q, want %q", w.tag(recipe.TagBoot), w.tag(recipe.TagDatastore), want)
	}
	w.reboot()
	w.boot("publish")
	if got := w.tag(recipe.TagDatastore); w.tag(recipe.TagBoot) != recipe.BootReady || !strings.Contains(got, of) {
		t.Errorf("ready with %q, tag datastore %q", w.tag(recipe.TagBoot), got)
	}
	if err := os.RemoveAll(aside[0]); err != nil {
		t.Fatal(err)
	}
	if w.boot("publish"); w.tag(recipe.TagDatastore) != "" {
		t.Errorf("tag datastore is %q without damaged files", w.tag(recipe.TagDatastore))
	}
}

// A repair that lost its power goes on: k3s without state.db would make a new cluster.
func TestSQLiteRepairGoesOn(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	w.writeRows("first")
	w.boot("publish")
	db := w.root + datastore + "state.db"
	if err := os.Rename(w.copies()[0], db+".new"); err != nil {
		t.Fatal(err)
	}
	for _, moved := range []string{"-wal", "-shm", ""} {
		if err := os.Remove(db + moved); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	w.reboot()
	if got := rows(t, db); got != "first400" {
		t.Errorf("the database has %s", got)
	}
}

// Without a good copy nothing is moved, and the boot says what to do.
func TestSQLiteWithoutCopy(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	w.reboot() // without state.db, as with etcd
	w.writeRows("first")
	w.damage()
	_ = os.Remove(w.root + "/run/ortet/booted")
	w.put(w.root+datastore+"copy-20260101T000000Z.db", "no database", 0o600)
	w.failure("it has no good copy; ortet cluster restore NAME")
	if aside, _ := filepath.Glob(w.root + datastore + "damaged-*"); len(aside) != 0 {
		t.Errorf("moved to %v", aside)
	}
}

// Damage that the hourly copy finds keeps the good copies, and is published.
func TestSQLiteDamageKeepsTheGoodCopies(t *testing.T) {
	t.Parallel()
	w := newReadyServer(t, nil)
	w.writeRows("first")
	w.boot("publish")
	w.age(2 * time.Hour)
	good := w.copies()
	w.writeRows("second")
	w.damage()
	if log := w.boot("publish"); !strings.Contains(log, "state.db is damaged (") {
		t.Errorf("publish says\n%s", log)
	}
	if got := w.copies(); !slices.Equal(got, good) {
		t.Errorf("copies are %v, want %v", got, good)
	}
}
