package generalize

import (
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// kernels installs a kernel with NVIDIA's driver by DKMS, and another one without it.
func (d *donor) kernels(driven, newest string) {
	d.t.Helper()
	const others = "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.zst: kernel/lib/x.ko\nkernel/drivers/net/y.ko: kernel/nvidia.ko\n"
	d.write(map[string]string{
		"boot/vmlinuz-" + driven: "", "boot/vmlinuz-" + newest: "", "boot/vmlinuz-9.9-without-modules": "",
		"lib/modules/" + driven + "/modules.dep": others + "updates/dkms/nvidia.ko.zst: kernel/drivers/z.ko\n",
		"lib/modules/" + newest + "/modules.dep": others, "var/lib/dkms/nvidia/kernel-535": "",
	})
}

// TestKernels: what captures go on where the newest kernel has the driver, or no kernel has.
func TestKernels(t *testing.T) {
	t.Parallel()
	for name, have := range map[string]func(d *donor){
		"the newest has it": func(d *donor) { d.kernels("6.8.0-1021-azure", "6.8.0-1009-azure") },
		"the newest has Debian's": func(d *donor) {
			d.kernels("6.1.0-9", "6.1.0-10")
			d.write(map[string]string{"lib/modules/6.1.0-10/modules.dep": "updates/dkms/nvidia-current.ko:\n"})
		},
		"the newest has it in the distribution's folder": func(d *donor) {
			d.kernels("6.8.0-9", "6.8.0-10")
			d.write(map[string]string{"lib/modules/6.8.0-10/modules.dep": "kernel/nvidia-535srv/nvidia.ko: x\n"})
		},
		"a kernel that is no more in /boot has it": func(d *donor) {
			d.write(map[string]string{"lib/modules/6.8.0-1/modules.dep": "extra/nvidia.ko.xz:\n"})
		},
		"none has it": func(d *donor) {
			d.kernels("6.8.0-9", "6.8.0-10")
			d.write(map[string]string{"lib/modules/6.8.0-9/modules.dep": "updates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko\n"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			have(d)
			wantOutcome(t, d.run(nil), wire.Generalized)
		})
	}
}

// TestGPUs: the toolkit's CDI specs go where they are made again, and the modules stay.
func TestGPUs(t *testing.T) {
	t.Parallel()
	const made = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  hooks:\n  - path: /usr/bin/nvidia-cdi-hook\n"
	const unit = "etc/systemd/system/multi-user.target.wants/nvidia-cdi-refresh.service"
	for name, c := range map[string]struct {
		files map[string]string
		gone  bool
	}{
		"made again at boot":        {map[string]string{unit: "", "etc/cdi/x": made}, true},
		"as JSON":                   {map[string]string{unit: "", "etc/cdi/x": `{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","hooks":["/usr/bin/nvidia-ctk"]}`}, true},
		"nothing makes it again":    {map[string]string{"etc/cdi/x": made}, false},
		"the unit is not enabled":   {map[string]string{"usr/lib/systemd/system/nvidia-cdi-refresh.service": "", "etc/cdi/x": made}, false},
		"written by people":         {map[string]string{unit: "", "etc/cdi/x": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"}, false},
		"of another maker":          {map[string]string{unit: "", "etc/cdi/x": "cdiVersion: 0.5.0\nkind: amd.com/gpu # as nvidia-ctk does\n"}, false},
		"the persistence daemon's":  {map[string]string{"run/nvidia-persistenced/nvidia-persistenced.pid": "911", "etc/cdi/x": ""}, false},
		"made again, /run on disk":  {map[string]string{unit: "", "run/cdi/nvidia.yaml": made, "etc/cdi/x": made}, true},
		"no CDI spec, but in /etc/": {map[string]string{unit: "", "etc/cdi/x": "see nvidia-ctk for nvidia.com/gpu\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			d.kernels("6.8.0-10", "6.8.0-9")
			d.write(map[string]string{"lib/modules/6.8.0-10/updates/dkms/nvidia.ko": "module"})
			d.write(c.files)
			wantOutcome(t, d.run(nil), wire.Generalized)
			paths := d.paths()
			if paths["etc/cdi/x"] == c.gone || paths["run/cdi/nvidia.yaml"] || paths["run/nvidia-persistenced/nvidia-persistenced.pid"] || !paths["lib/modules/6.8.0-10/updates/dkms/nvidia.ko"] {
				t.Errorf("the spec is there: %v; left are %v", paths["etc/cdi/x"], paths)
			}
		})
	}
}
