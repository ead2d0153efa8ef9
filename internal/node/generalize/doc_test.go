package generalize

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

var update = flag.Bool("update", false, "write docs/generalize.md anew")

// docs/generalize.md is written from the table and the rules, so that it cannot
// say anything else than what is done: go test ./internal/node/generalize -run
// TestDocumentation -update
func TestDocumentation(t *testing.T) {
	file := filepath.Join("..", "..", "..", "docs", "generalize.md")
	want := documentation()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says; run this test with -update", file)
	}
}

func documentation() string {
	var b strings.Builder
	b.WriteString(`# What generalising removes

This page is written from the code (` + "`go test ./internal/node/generalize -run TestDocumentation -update`" + `).

` + "`ortet-node generalize`" + ` works on a copy of the donor's disk, never on the donor's. It first looks, and refuses
a disk that is not the donor's, that is a control plane's, or that sets ` + "`preserve_hostname: true`" + `; then it adds
a line (date, donor, capture) to ` + "`/var/log/ancestry.log`" + `, seals what cannot be read back from Azure (customData,
protected settings) to the caller's key, cleans by the list below, and scans the whole tree. Rows marked *last* are
worked off only after the scan has passed, because the run itself reads them; so a run that was killed, or whose scan
failed, can be repeated on the same disk without loss. Once the last rows are gone and the report is lost, the copy has
to be made from the donor's snapshot again: the next report says so (` + "`resumed`, `unsaved`" + `).

*shred* overwrites with zeros and then removes, since a snapshot copies freed blocks too; after all of it, freed blocks
are given back to the disk. *empty* keeps the file with its owner and mode.

`)
	group := ""
	for _, r := range Table() {
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&b, "## %s\n\n| path | what is done | why |\n|---|---|---|\n", group)
		}
		what := string(r.Action)
		switch {
		case r.Action == Edit:
			what = r.What
		case r.What != "":
			what = "shred if " + r.What
		}
		if r.When != "" {
			what += " (bootstrap " + string(r.When) + ")"
		}
		if r.Last {
			what += ", *last*"
		}
		path := "`" + r.Path + "`"
		if r.Path == "/" {
			path = "the runtime's folders"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", path, what, r.Why)
	}
	b.WriteString(`
Not removed on purpose: ` + "`/etc/resolv.conf`" + `, the image stores, the agents' and extensions' programs, bootstrap
kubeconfigs and tokens (see the scan). Hooks in ` + "`/etc/cloud/clean.d`" + ` are programs of the donor's; they are named
in the report and never run beside the workbench's devices.

## The scan

Every regular file is read whole, in bounded memory; what cannot be read, or lies beyond 64 GiB, is a finding.
Image stores hold what registries gave and are named instead. A finding says path, rule and line, never the value.

| rule | class | what it finds |
|---|---|---|
`)
	for _, r := range Rules() {
		class := "node identity: always fails"
		if r.Class == wire.PoolCredential {
			class = "pool credential: fails without `--accept-pool-credentials`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Name, class, r.Finds)
	}
	b.WriteString("\nThe donor's names and addresses count where a clone reads them at its start: ")
	for i, p := range state() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("`/" + p + "`")
	}
	b.WriteString(". Elsewhere they are listed as mentions and do no harm.\n")
	return b.String()
}
