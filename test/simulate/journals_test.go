package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var update = flag.Bool("update", false, "write the stored journals")

// journals are open ones as a binary of today's schema wrote them when it was killed.
var journals = map[string]Story{
	"capture-stopped": {Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Once: true}, {Do: "capture"}}, Happen: at(putSnapshot, 1, "kill after")},
	"capture-copied": {Seed: 1, Pool: with(func(p *Pool) { p.Extensions, p.Settings = []string{"monitor", "cse"}, "sealed" }), Single: powerOff,
		Asks: []Ask{{Do: "capture", Once: true, Grow: 1}, {Do: "capture", Grow: 1}}, Happen: at(patchModel, 1, "kill after")},
	"rollback": {Seed: 4, Pool: bootstrapped("sealed"), Asks: []Ask{{Do: "capture"}, {Do: "rollback", To: "original", Once: true}, {Do: "rollback", To: "original"}},
		Happen: at("azure PUT virtualMachineScaleSets/pool1/extensions/vmssCSE", 1, "kill before")},
}

// TestStoredJournals exchanges the binary while a journal is open: a new process resumes what
// the file in testdata holds. Each field of the file is in the record that this binary writes at
// the same point: a field that was renamed would be forgotten.
func TestStoredJournals(t *testing.T) {
	// Of a release before versions had a tag that says that they never were live: its captures skipped the row
	// that removes the tag, its rollbacks did not record what the model was, and its requests had the default of replicas.
	for _, name := range []string{"capture-copied", "rollback"} {
		journals[name+"-earlier"] = journals[name]
	}
	for name, s := range journals {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "journal-"+name+".json")
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(s)
				last := len(s.Asks) - 1
				for i, ask := range s.Asks[:last] {
					w.pursue(i, ask)
				}
				w.exchange(t, path)
				w.pursue(last, s.Asks[last])
				p := w.processes[len(w.processes)-1]
				if len(w.violations) > 0 || !p.capture.Resumed && !p.rollback.Resumed {
					t.Errorf("resumed: %t\n%s", p.capture.Resumed || p.rollback.Resumed, strings.Join(append(w.violations, w.lines...), "\n"))
				}
				if n := w.counts[s.Single]; s.Single != "" && n != 1 {
					t.Errorf("%s was sent %d times", s.Single, n)
				}
				w.close()
				for _, p := range w.processes {
					p.cancel()
					<-p.done
				}
			})
		})
	}
}

// exchange puts the stored record in the place of the written one.
func (w *world) exchange(t *testing.T, path string) {
	t.Helper()
	name, written := "", []byte(nil)
	w.kube.Peek("secrets", func(o runtime.Object) bool {
		if secret, ok := o.(*corev1.Secret); ok && strings.HasPrefix(secret.Name, "ortet-journal-") {
			name, written = secret.Name, secret.Data["record"]
		}
		return true
	})
	earlier := strings.Contains(path, "-earlier")
	if *update && !earlier {
		var text bytes.Buffer
		if err := json.Indent(&text, written, "", "  "); err != nil {
			t.Fatal(err)
		}
		text.WriteByte('\n')
		if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	var want, have any
	if err := errors.Join(json.Unmarshal(text, &want), json.Unmarshal(written, &have)); err != nil {
		t.Fatal(err)
	}
	for _, lack := range lacking(want, have, "record") {
		if !earlier || !strings.HasPrefix(lack, "record.steps.") && lack != "record.request.replicas" {
			t.Errorf("the record that this binary writes has no %s, which %s has", lack, path)
		}
	}
	w.kube.Change("secrets", namespace, name, func(o runtime.Object) { o.(*corev1.Secret).Data = map[string][]byte{"record": text} })
}

// lacking lists fields of one JSON value that another does not have.
func lacking(want, have any, at string) (all []string) {
	fields, _ := want.(map[string]any)
	there, _ := have.(map[string]any)
	if at == "record.steps" { // which step has asked at the kill depends on the seed; any step shows a field's name
		all := map[string]any{}
		for _, step := range there {
			maps.Copy(all, step.(map[string]any))
		}
		for name, step := range there {
			own := maps.Clone(all)
			maps.Copy(own, step.(map[string]any))
			there[name] = own
		}
	}
	for field, value := range fields {
		if _, ok := there[field]; !ok {
			all = append(all, at+"."+field)
			continue
		}
		all = append(all, lacking(value, there[field], at+"."+field)...)
	}
	return all
}
