package recipe_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s/recipe"
)

const otherKey = "b3RoZXIta2V5LW9mLXRoZS1zaGFyZQ=="

// A share whose account's key was rotated, or whose account was made again, is mounted again.
// All else leaves it as it is.
func TestShareIsMountedAgain(t *testing.T) {
	t.Parallel()
	const again = "umount mount"
	for name, c := range map[string]struct {
		state  string   // the file that has the share be so
		key    string   // of the account now
		denied int      // so often listKeys is refused
		runs   []string // what each run mounts
		says   string   // once in all runs
	}{
		"key rotated, and the mount lives": {"", otherKey, 0, []string{"", ""}, ""},
		"dead by another key":              {"dead", otherKey, 0, []string{"remount " + again, ""}, ""},
		"dead by another key, and blocks":  {"blocked", otherKey, 0, []string{"remount " + again}, ""},
		"outage":                           {"dead", shareKey, 0, []string{"", ""}, "its key is the account's, so it is left as it is"},
		"listKeys is refused":              {"dead", otherKey, 2, []string{"", "", "remount " + again, ""}, "AuthorizationFailed"},
		"killed between":                   {"unmounted", otherKey, 0, []string{"mount", ""}, ""},
	} {
		for role, command := range map[string]string{"agents": "share", "server": "publish"} {
			t.Run(name+" of "+role, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.tags[recipe.TagCAHash] = caHash
				w.install(role, nil)
				w.put(w.root+"/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAhost root@server\n", 0o644)
				w.boot()
				if c.state == "unmounted" {
					w.put(w.root+"/proc/mounts", "", 0o644)
				} else if c.state != "" {
					w.put(w.root+"/"+c.state, "", 0o644)
				}
				w.mu.Lock()
				w.key, w.denied = c.key, c.denied
				w.mu.Unlock()
				said := ""
				for i, want := range c.runs {
					w.put(w.root+"/commands", "", 0o644)
					said += w.boot(command)
					if got := w.mounts(); got != want {
						t.Errorf("run %d: %q, want %q; it said\n%s", i+1, got, want, said)
					}
				}
				if c.says != "" && strings.Count(said, c.says) != 1 {
					t.Errorf("it does not say %q once:\n%s", c.says, said)
				}
				if mounted := strings.Contains(strings.Join(c.runs, ""), "mount"); mounted != strings.Contains(w.read("/run/ortet/share-credentials"), otherKey) {
					t.Errorf("mounted again %t, and the credentials are\n%s", mounted, w.read("/run/ortet/share-credentials"))
				}
			})
		}
	}
}

// Pods go on where the kernel takes another key for a mount that is there.
func TestShareTakesAnotherKeyInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tags[recipe.TagCAHash] = caHash
	w.install("agents", nil)
	w.boot()
	w.put(w.root+"/in-place", "", 0o644)
	for _, key := range []string{otherKey, shareKey} {
		w.put(w.root+"/dead", "", 0o644)
		w.mu.Lock()
		w.key = key
		w.mu.Unlock()
		w.put(w.root+"/commands", "", 0o644)
		if said := w.boot("share"); w.mounts() != "remount" || strings.Contains(said, key) {
			t.Errorf("%q, want one remount, and no key said:\n%s", w.mounts(), said)
		}
		if i, err := os.Stat(w.root + "/run/ortet/share-key"); err != nil || i.Mode().Perm() != 0o600 || strings.Contains(w.read("/run/ortet/share-key"), key) {
			t.Errorf("share-key: %v, %v: want mode 600 and a digest", i, err)
		}
	}
}

// mounts are the commands for the share, in a word each.
func (w *world) mounts() string {
	var all []string
	for line := range strings.Lines(w.read("/commands")) {
		switch {
		case strings.HasPrefix(line, "umount --lazy "+w.root+"/srv"):
			all = append(all, "umount")
		case strings.HasPrefix(line, "mount -t cifs") && strings.Contains(line, "-o remount,vers"):
			all = append(all, "remount")
		case strings.HasPrefix(line, "mount -t cifs"):
			all = append(all, "mount")
		}
	}
	return strings.Join(all, " ")
}
