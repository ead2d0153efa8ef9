package generalize

import (
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// What a package manager fetches again goes, and what it needs to work stays.
func TestCachesOfPackageManagers(t *testing.T) {
	d := newDonor(t)
	gone := []string{
		"var/cache/apt/archives/curl_7_amd64.deb", "var/cache/apt/archives/partial/x.deb", "var/cache/apt/pkgcache.bin",
		"var/lib/apt/lists/mirror.example_debian_dists_bookworm_InRelease", "var/lib/apt/lists/partial/x",
		"var/cache/dnf/baseos-1/repodata/primary.xml.gz", "var/cache/libdnf5/updates-1/packages/a.rpm", "var/cache/yum/x86_64/7/base/cachecookie",
		"var/cache/tdnf/base/tdnfcache/x", "var/cache/zypp/raw/oss/x", "var/cache/PackageKit/8/metadata/x",
	}
	stays := []string{
		"var/cache/apt/archives/lock", "var/lib/apt/lists/lock", "var/lib/apt/lists/auxfiles/x", "var/lib/apt/extended_states", "var/lib/dnf/history.sqlite",
		"var/lib/dpkg/info/curl.list", "etc/apt/sources.list", "usr/share/cracklib/x", "var/cache/debconf/config.dat", "var/lib/rpm/rpmdb.sqlite",
	}
	for _, at := range append(gone, stays...) {
		d.write(map[string]string{at: "x"})
	}
	wantOutcome(t, d.run(nil), wire.Generalized)
	left := d.paths()
	for _, at := range gone {
		if left[at] {
			t.Errorf("%s is left", at)
		}
	}
	for _, at := range stays {
		if !left[at] {
			t.Errorf("%s is gone", at)
		}
	}
}

// cloud-init adds its rules again on each clone.
func TestSudoersOfCloudInit(t *testing.T) {
	const at, rules = "etc/sudoers.d/90-cloud-init-users", "\n# User rules for azureuser\nazureuser ALL=(ALL) NOPASSWD:ALL\n"
	for before, after := range map[string]string{
		"# Created\n" + rules:                   "# Created\n" + rules,
		"# Created\n" + rules + rules + rules:   "# Created\n" + rules,
		"a ALL=ALL\na ALL=(b) ALL\na ALL=ALL\n": "a ALL=(b) ALL\na ALL=ALL\n",
		"a ALL= \\\n ALL\nb ALL= \\\n ALL\n":    "a ALL= \\\n ALL\nb ALL= \\\n ALL\n",
	} {
		d := newDonor(t)
		d.write(map[string]string{at: before})
		wantOutcome(t, d.run(nil), wire.Generalized)
		if got := d.read(at); got != after {
			t.Errorf("%q became %q, want %q", before, got, after)
		}
	}
}
