package join

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

func TestJudge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := &login{node: ourName, expires: now.Add(time.Hour)}
	ended := &login{node: ourName, expires: now}
	others := &login{node: "pool1000001", expires: now.Add(time.Hour)}
	mixed := &login{node: ourName, expires: now.Add(time.Hour), stray: "pool1000001"}
	record := func(state State, vm, firmware string) *Record {
		return &Record{State: state, VMID: vm, Firmware: firmware, NodeName: ourName}
	}
	me := &Machine{VMID: ourVM, HostName: "pool100000A"}
	nameless := &Machine{VMID: ourVM}
	for name, c := range map[string]struct {
		r        *Record
		l        *login
		firmware string
		m        *Machine
		want     finding
	}{
		"nothing":                                        {nil, nil, ourVM, nil, isNone},
		"no record, before Azure was asked":              {nil, good, ourVM, nil, isUnknown},
		"no record, our name":                            {nil, good, ourVM, me, isOwn},
		"no record, another's name":                      {nil, others, ourVM, me, isForeign},
		"no record, Azure tells no name":                 {nil, good, ourVM, nameless, isForeign},
		"no record, ended":                               {nil, ended, ourVM, me, isUsedUp},
		"ours by the firmware":                           {record(Joined, ourVM, ourVM), good, ourVM, nil, isOwn},
		"another's by the firmware, not asked":           {record(Joined, otherVM, otherVM), good, ourVM, nil, isUnknown},
		"another's by the firmware":                      {record(Joined, otherVM, otherVM), good, ourVM, me, isForeign},
		"another's, and no certificate":                  {record(Joined, otherVM, otherVM), nil, ourVM, me, isForeign},
		"the firmware has come to spell it differently":  {record(Joined, ourVM, otherVM), good, ourVM, me, isOwn},
		"the firmware does not tell":                     {record(Joined, ourVM, ourVM), good, "", nil, isUnknown},
		"ours by Azure":                                  {record(Joined, ourVM, ""), good, "", me, isOwn},
		"another's by Azure":                             {record(Joined, otherVM, ""), good, ourVM, me, isForeign},
		"firmware spells it another way than Azure":      {record(Joined, ourVM, otherVM), good, otherVM, nil, isOwn},
		"our record, the donor's files":                  {record(Joined, ourVM, ourVM), others, ourVM, nil, isForeign},
		"our record, the donor's certificate among ours": {record(Joined, ourVM, ourVM), mixed, ourVM, nil, isForeign},
		"our record, no certificate":                     {record(Joined, ourVM, ourVM), nil, ourVM, nil, isUsedUp},
		"our record, ended":                              {record(Joined, ourVM, ourVM), ended, ourVM, nil, isUsedUp},
		"has left":                                       {record(HasLeft, ourVM, ourVM), good, ourVM, nil, isUsedUp},
		"interrupted":                                    {record(Discarding, unknownVM, ""), good, ourVM, nil, isForeign},
	} {
		if got, why := judge(c.r, c.l, c.firmware, c.m, now); got != c.want || got != isOwn && got != isUnknown && why == "" {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
}

// stranger fills a disk with what a donor's kubelet and k3s know.
func (w *world) stranger() {
	w.kubelet("pool1000001", time.Now().Add(time.Hour))
	w.write("/etc/rancher/node/password", "donor")
	w.write("/var/lib/rancher/k3s/agent/client-kubelet.key", "donor")
	w.write("/var/lib/rancher/k3s/agent/client-kubelet.crt", "donor")
	w.write("/var/lib/cni/networks/x/10.0.0.1", "donor")
	w.write("/var/lib/kubelet/memory_manager_state", "donor")
}

// strangers are the files of stranger.
func strangers() []string {
	return []string{
		"/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/pki/kubelet-client-current.pem", "/var/lib/kubelet/pki/kubelet-client-2026-01-01-00-00-00.pem",
		"/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state", "/var/lib/kubelet/pods/uid", "/etc/rancher/node/password",
		"/var/lib/rancher/k3s/agent/client-kubelet.key", "/var/lib/rancher/k3s/agent/client-kubelet.crt", "/var/lib/cni/networks/x",
	}
}

func (w *world) strangersLeft() (left []string) {
	for _, p := range strangers() {
		if _, err := os.Lstat(w.path(p)); !errors.Is(err, fs.ErrNotExist) {
			left = append(left, p)
		}
	}
	return left
}

func TestAStrangersIdentityIsRemoved(t *testing.T) {
	for name, prepare := range map[string]func(w *world){
		"a clone with the donor's record": func(w *world) {
			w.write(RecordFile, `{"state":"joined","vmId":"`+otherVM+`","nodeName":"pool1000001"}`)
		},
		"a clone without a record": func(*world) {},
		"the donor's files put back by hand": func(w *world) {
			w.write(RecordFile, `{"state":"joined","vmId":"`+ourVM+`","nodeName":"`+ourName+`"}`)
		},
		"a record that a power cut left": func(w *world) { w.write(RecordFile, "") },
		"the donor's keys without its kubeconfig": func(w *world) {
			if err := os.Remove(w.path("/etc/kubernetes/kubelet.conf")); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stranger()
			prepare(w)
			w.mustJoin()
			if left := w.strangersLeft(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			if r := w.record(); r.State != Joined || r.VMID != ourVM || w.joins != 1 {
				t.Errorf("%d joins, and %+v", w.joins, r)
			}
		})
	}
}

// The disk is clean of another machine's identity also while nobody admits.
func TestAStrangersIdentityIsRemovedBeforeTheServerAnswers(t *testing.T) {
	w := newWorld(t)
	w.stranger()
	w.write(RecordFile, `{"state":"joined","vmId":"`+otherVM+`","nodeName":"pool1000001"}`)
	w.server.Close()
	if err := w.join(); err == nil {
		t.Fatal("joined without a server")
	}
	if left := w.strangersLeft(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Whenever the machine dies, the next start ends in the same state.
func TestJoinGoesOnAfterACrashAnywhere(t *testing.T) {
	marked := `{"state":"discarding","vmId":"` + unknownVM + `"}`
	paths := strangers()
	for n := range len(paths) + 1 {
		// Removed so far, in either order.
		for _, backwards := range []bool{false, true} {
			w := newWorld(t)
			w.stranger()
			w.write(RecordFile, marked)
			for i := range n {
				p := paths[i]
				if backwards {
					p = paths[len(paths)-1-i]
				}
				if err := os.RemoveAll(w.path(p)); err != nil {
					t.Fatal(err)
				}
			}
			w.mustJoin()
			if left := w.strangersLeft(); len(left) > 0 || w.record().State != Joined || w.record().VMID != ourVM {
				t.Errorf("after %d removals: %+v, left %q", n, w.record(), left)
			}
		}
	}
	// Written so far; the record is last.
	for _, distribution := range []string{wire.Kubelet, wire.K3s} {
		whole := newWorld(t)
		whole.settings.Distribution = distribution
		whole.mustJoin()
		var written []string
		_ = filepath.WalkDir(whole.root, func(p string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				rel, _ := filepath.Rel(whole.root, p)
				written = append(written, "/"+rel)
			}
			return err
		})
		if len(written) < 3 {
			t.Fatalf("written: %q", written)
		}
		for _, before := range []string{"", marked, `{"state":"left","vmId":"` + ourVM + `"}`} {
			for n := range written {
				w := newWorld(t)
				w.settings.Distribution = distribution
				for _, p := range written[:n] {
					w.write(p, whole.read(p))
					w.write(filepath.Dir(p)+"/."+filepath.Base(p)+".ortet", "half")
				}
				if err := os.RemoveAll(w.path(RecordFile)); err != nil {
					t.Fatal(err)
				}
				if before != "" {
					w.write(RecordFile, before)
				}
				w.mustJoin()
				for _, p := range written {
					// Each world has a CA of its own.
					want := strings.ReplaceAll(whole.read(p), encoded(whole), encoded(w))
					if got := w.read(p); p != RecordFile && p != clientCA && got != want {
						t.Errorf("after %d files, %q: %s is %q", n, before, p, got)
					}
				}
				if w.record().State != Joined {
					t.Errorf("after %d files: %+v", n, w.record())
				}
			}
		}
	}
}

func encoded(w *world) string { return base64.StdEncoding.EncodeToString(w.ca.pem()) }

// A kubelet's kubeconfig lies where the settings say, with the other machine's key in
// it. Where it could not be removed no agent may start.
func TestAStrangersIdentityIsRemovedWhereTheSettingsSay(t *testing.T) {
	const own = "/opt/kubelet/kubeconfig"
	for _, settled := range []bool{true, false} {
		w := newWorld(t)
		_, cert, key := w.ca.issue(t, subjectFor+"donor", time.Now().Add(time.Hour))
		text := func(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
		path := "/k/config" // which is looked for, and in no list of what is removed
		if settled {
			w.settings.Kubelet.Kubeconfig, path = own, own
		}
		w.write(path, `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://10.0.0.4:6443","certificate-authority-data":"`+text(w.ca.pem())+`"}}],
"users":[{"name":"n","user":{"client-certificate-data":"`+text(cert)+`","client-key-data":"`+text(key)+`"}}]}`)
		err := w.client().Join(t.Context(), true)
		if (err == nil) != settled || w.there(ReadyFile) != settled || settled && w.there(own) {
			t.Errorf("%s: %v; an agent may start: %v", path, err, w.there(ReadyFile))
		}
	}
}

// What is this machine's own and does not serve any more is renewed; its pods' data
// stays.
func TestACertificateThatEndedIsRenewed(t *testing.T) {
	w := newWorld(t)
	w.mustJoin()
	w.kubelet(ourName, time.Now().Add(-time.Minute))
	w.write("/etc/rancher/node/password", "ours")
	w.mustJoin()
	if w.joins != 2 || w.read("/etc/kubernetes/kubelet.conf") != "" || w.read("/etc/rancher/node/password") != "" {
		t.Errorf("%d joins; the old credentials are there still", w.joins)
	}
	if w.read("/var/lib/kubelet/pods/uid/volumes/x") == "" || w.read("/var/lib/kubelet/cpu_manager_state") == "" {
		t.Error("its pods' volumes are gone")
	}
}

func TestAnIdentityOfOursIsAdopted(t *testing.T) {
	w := newWorld(t)
	w.kubelet(ourName, time.Now().Add(time.Hour))
	before := w.read("/etc/kubernetes/kubelet.conf")
	w.mustJoin()
	if r := w.record(); w.joins != 0 || r.VMID != ourVM || r.NodeName != ourName || w.read("/etc/kubernetes/kubelet.conf") != before {
		t.Errorf("%d joins, %+v", w.joins, r)
	}
	// From now on nobody is asked where the firmware tells who this is; here Azure is.
	w.server.Close()
	w.mustJoin()
}

// The record of a join is lost. A kubelet needs nothing of it; k3s and RKE2 would wait
// for their token for ever, so they join anew, but for those that joined without us.
func TestARecordThatIsLost(t *testing.T) {
	for _, distribution := range []string{wire.Kubelet, wire.K3s, wire.RKE2} {
		for _, text := range []string{"", "{", `{"state":"joined"}`} {
			w := newWorld(t)
			w.settings.Distribution = distribution
			w.mustJoin()
			w.kubelet(ourName, time.Now().Add(time.Hour))
			w.write(RecordFile, text)
			if err := os.RemoveAll(w.path("/run")); err != nil { // another boot
				t.Fatal(err)
			}
			w.mustJoin()
			if again := w.joins == 2; again != (distribution != wire.Kubelet) || again != strings.Contains(w.read(RancherToken), goodToken) {
				t.Errorf("%s with %q: %d joins, token %q", distribution, text, w.joins, w.read(RancherToken))
			}
		}
	}
	w := newWorld(t)
	w.settings.Distribution = wire.K3s
	w.kubelet(ourName, time.Now().Add(time.Hour))
	if w.mustJoin(); w.joins != 0 {
		t.Error("one that joined without us joins anew")
	}
}

// Nothing is removed through what is mounted: it may be data elsewhere.
func TestNothingIsRemovedThroughAMount(t *testing.T) {
	w := newWorld(t)
	w.stranger()
	w.write("/proc/self/mountinfo", "36 35 98:0 / / rw - ext4 /dev/sda1 rw\n37 36 0:40 / /var/lib/kubelet/pods/uid/volumes/a\\040b rw - nfs server:/data rw\n")
	err := w.client().Join(t.Context(), true)
	if err == nil || !strings.Contains(err.Error(), "/var/lib/kubelet/pods/uid/volumes/a b is mounted there") {
		t.Fatalf("%v", err)
	}
	if len(w.strangersLeft()) != len(strangers()) || w.joins != 0 {
		t.Errorf("removed in part: only %q are left; %d joins", w.strangersLeft(), w.joins)
	}
	if w.there(ReadyFile) {
		t.Error("an agent may start")
	}
	// Once it is unmounted it goes on.
	w.write("/proc/self/mountinfo", "")
	w.mustJoin()
	if len(w.strangersLeft()) != 0 || !w.there(ReadyFile) {
		t.Errorf("left: %q", w.strangersLeft())
	}
}

func TestSecretsAreClosedToOthers(t *testing.T) {
	w := newWorld(t)
	w.settings.Distribution = wire.K3s
	w.write(RancherToken, "old")
	if err := os.Chmod(w.path(RancherToken), 0o644); err != nil {
		t.Fatal(err)
	}
	w.mustJoin()
	if info, err := os.Stat(w.path(RancherToken)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// k3s wants a token at each start, and goes by its certificate.
func TestASpentTokenKeepsThePin(t *testing.T) {
	w := newWorld(t)
	w.settings.Distribution = wire.K3s
	w.mustJoin()
	_, cert, key := w.ca.issue(t, subjectFor+ourName, time.Now().Add(time.Hour))
	const dir = "/var/lib/rancher/k3s/agent/"
	w.write(dir+"client-kubelet.crt", string(cert))
	w.write(dir+"client-kubelet.key", string(key))
	w.write(dir+"server-ca.crt", string(w.ca.pem()))
	w.write(dir+"kubelet.kubeconfig", "apiVersion: v1\nkind: Config\nclusters: [{name: local, cluster: {server: 'https://127.0.0.1:6444', certificate-authority: "+dir+"server-ca.crt}}]\nusers: [{name: user, user: {client-certificate: "+dir+"client-kubelet.crt, client-key: "+dir+"client-kubelet.key}}]\n")
	if err := os.RemoveAll(w.path("/run")); err != nil {
		t.Fatal(err)
	}
	w.server.Close()
	w.mustJoin()
	if got := w.read(RancherToken); got != pinOfCA+spentToken+"\n" || !pinnedToken.MatchString(strings.TrimSpace(got)) {
		t.Errorf("%q", got)
	}
}

// A node that has joined before starts also where nothing can be written: a full disk
// is for its kubelet to clear.
func TestAdoptedWithoutARecord(t *testing.T) {
	w := newWorld(t)
	w.kubelet(ourName, time.Now().Add(time.Hour))
	if err := os.MkdirAll(w.path(RecordFile), 0o755); err != nil { // nothing can be written there
		t.Fatal(err)
	}
	w.mustJoin()
	if w.joins != 0 || !w.there(ReadyFile) || !strings.Contains(w.said(), "cannot be recorded") {
		t.Errorf("%d joins, ready %v\n%s", w.joins, w.there(ReadyFile), w.said())
	}
}
