package join

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A kubelet keeps its certificates where its flag says: what a donor's has there is
// found and removed, wherever the flag is set.
func TestAStrangersIdentityIsRemovedWhereTheKubeletKeepsIt(t *testing.T) {
	const dir = "/opt/kubelet/pki"
	sources := map[string]map[string]string{
		"/etc/default/kubelet":               {"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--v=2 --cert-dir=" + dir + " --node-ip=10.0.0.1\n"},
		"/etc/sysconfig/kubelet, in quotes":  {"/etc/sysconfig/kubelet": `KUBELET_EXTRA_ARGS="--cert-dir ` + dir + `"` + "\n"},
		"kubeadm's flags":                    {"/var/lib/kubelet/kubeadm-flags.env": `KUBELET_KUBEADM_ARGS="--cert-dir='` + dir + `/' --x"` + "\n"},
		"the unit":                           {"/etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet \\\n  --cert-dir \\\n  " + dir + " \\\n  --v=2\n"},
		"a drop-in of the distribution's":    {"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": "[Service]\nEnvironment=\"A=--cert-dir=" + dir + "\"\n"},
		"a file that the unit reads":         {"/lib/systemd/system/kubelet.service": "[Service]\nEnvironmentFile=-/etc/mine/*.env\n", "/etc/mine/k.env": "X=--cert-dir=" + dir + "\n"},
		"twice, the second of which counts":  {"/etc/default/kubelet": "A=--cert-dir=/nowhere --cert-dir=" + dir + "\n"},
		"a unit that is a link":              {"/srv/unit": "ExecStart=kubelet --cert-dir=" + dir + "\n"},
		"a folder that is a link from there": {"/etc/default/kubelet": "A=--cert-dir=/pki\n"},
	}
	for name, files := range sources {
		for what, prepare := range map[string]func(w *world){
			"with its kubeconfig": func(*world) {},
			"without its kubeconfig": func(w *world) {
				if err := os.Remove(w.path("/etc/kubernetes/kubelet.conf")); err != nil {
					t.Fatal(err)
				}
			},
			"beside ours": func(w *world) {
				w.kubelet(ourName, time.Now().Add(time.Hour))
				w.write(RecordFile, `{"state":"joined","vmId":"`+ourVM+`","nodeName":"`+ourName+`"}`)
			},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				w := newWorld(t)
				w.kubelet("pool1000001", time.Now().Add(time.Hour))
				donor := w.read("/var/lib/kubelet/pki/kubelet-client-2026-01-01-00-00-00.pem")
				for path, text := range files {
					w.write(path, text)
				}
				for _, link := range [][2]string{{"/srv/unit", "/etc/systemd/system/kubelet.service"}, {dir, "/pki"}} {
					if !w.there(link[1]) {
						w.write(link[1], "")
						if err := os.Remove(w.path(link[1])); err != nil {
							t.Fatal(err)
						}
						if err := os.Symlink(link[0], w.path(link[1])); err != nil {
							t.Fatal(err)
						}
					}
				}
				for _, f := range []string{"kubelet-client-2026-02-02-00-00-00.pem", rotated, "kubelet-server-current.pem", "kubelet.key", "somebody-elses.key"} {
					w.write(dir+"/"+f, donor)
				}
				if err := os.RemoveAll(w.path(standardCertDir)); err != nil {
					t.Fatal(err)
				}
				w.write("/etc/kubernetes/kubelet.conf", strings.ReplaceAll(w.read("/etc/kubernetes/kubelet.conf"), standardCertDir, dir))
				prepare(w)
				w.mustJoin()
				entries, err := os.ReadDir(w.path(dir))
				if err != nil || len(entries) != 1 || entries[0].Name() != "somebody-elses.key" {
					t.Errorf("left: %v, %v", entries, err)
				}
				if w.joins != 1 || w.record().State != Joined {
					t.Errorf("%d joins, %+v", w.joins, w.record())
				}
			})
		}
	}
}

// What is no flag's value is not taken for one, and a kubelet's own that serves stays.
func TestCertDirs(t *testing.T) {
	w := newWorld(t)
	w.mustJoin()
	w.kubelet(ourName, time.Now().Add(time.Hour))
	w.write("/etc/default/kubelet", "# --cert-dir=/commented\nA=--cert-dir=relative --cert-dir=$DIR --cert-dir=/own --cert-dir=/own/../own/ --cert-directory=/x\n")
	w.write("/etc/systemd/system/kubelet.service.d/1.conf", "EnvironmentFile=/etc/default/[\nEnvironmentFile=/etc/default/kubelet\n ; --cert-dir=/x\n")
	if err := os.MkdirAll(w.path("/etc/sysconfig/kubelet"), 0o755); err != nil { // a folder where a file is looked for
		t.Fatal(err)
	}
	own := w.read("/var/lib/kubelet/pki/kubelet-client-current.pem")
	w.write("/own/"+rotated, own)
	a := w.open()
	if dirs, err := certDirs(a); err != nil || !slices.Equal(dirs, []string{standardCertDir, "/own"}) {
		t.Errorf("%q, %v", dirs, err)
	}
	w.mustJoin()
	if w.joins != 1 || w.read("/own/"+rotated) != own {
		t.Errorf("%d joins; its own certificate is there: %v", w.joins, w.there("/own/"+rotated))
	}
}

// What no program could read keeps no machine from joining.
func TestCertDirsOfNobody(t *testing.T) {
	long := "/etc/" + strings.Repeat("a", 300)
	for name, unit := range map[string]string{
		"a circle":           "EnvironmentFile=-/etc/circle\nExecStart=/k --cert-dir=/etc/circle/pki",
		"a circle's pattern": "EnvironmentFile=-/etc/circle/*.env",
		"too long":           "EnvironmentFile=-" + long + "\nExecStart=/k --cert-dir=" + long,
		"below a file":       "EnvironmentFile=-/etc/default/kubelet/x\nExecStart=/k --cert-dir=/etc/default/kubelet/pki",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stranger()
			w.write("/etc/default/kubelet", "")
			w.write("/etc/systemd/system/kubelet.service", unit)
			if err := os.Symlink("circle", w.path("/etc/circle")); err != nil {
				t.Fatal(err)
			}
			w.mustJoin()
		})
	}
}

// Nothing is removed where something is mounted, there neither.
func TestCertificatesElsewhereOnAMount(t *testing.T) {
	w := newWorld(t)
	w.stranger()
	w.write("/etc/default/kubelet", "A=--cert-dir=/data/pki\n")
	w.write("/data/pki/"+rotated, "a donor's")
	w.write("/proc/self/mountinfo", "36 35 98:0 / / rw - ext4 /dev/sda1 rw\n37 36 0:40 / /data/pki/"+rotated+" rw - nfs server:/data rw\n")
	err := w.client().Join(t.Context(), true)
	if err == nil || !strings.Contains(err.Error(), "is mounted there") || len(w.strangersLeft()) != len(strangers()) {
		t.Errorf("%v; left: %q", err, w.strangersLeft())
	}
}
