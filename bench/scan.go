package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	scanFiles = 21_200 // in a GB: 47 KB on average
	// A node's disk, and how long its scan may take on two processors.
	scanWhole, scanWithin = 20, 3 * time.Minute
	scanDonor             = "aks-pool-1-vmss000000"
	scanSeed              = 1
	// scanRefused is what the agent exits with where it found a secret.
	scanRefused = 3
)

// scanDisk is what it costs the agent to scan a copy of a node's disk for secrets. The
// tree is made anew: programs are parts of our own, texts are the repository's, packed
// and encoded files are generated; two fifths of it lie in image layers. A node's disk
// has scanWhole GB: only a tree of that size has its time judged.
func scanDisk(ctx context.Context, o options) (_ []figure, err error) {
	dir, err := os.MkdirTemp("", "ortet-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	size, err := makeDisk(dir, filepath.Join(o.bin, "ortet"), o.disk*scanFiles)
	if err != nil {
		return nil, fmt.Errorf("make the disk: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(o.bin, "ortet-node"), "generalize", "--root", dir, "--dry-run",
		"--capture", "bench", "--donor", scanDonor, "--at", "2026-01-01T00:00:00Z")
	var report bytes.Buffer
	cmd.Stdout = &report
	begun := time.Now()
	// Programs' texts have examples of secrets, for which the disk is refused: the agent
	// has scanned all of it then too.
	exit := (*exec.ExitError)(nil)
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != scanRefused) {
		return nil, fmt.Errorf("%w: %s", err, report.Bytes()[max(0, report.Len()-2000):])
	}
	took := time.Since(begun)
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return nil, errors.New("no usage of the agent's process is known")
	}
	const megabyte, gigabyte = 1e6, 1e9
	duration := free("duration", took.Seconds(), "s")
	if o.disk >= scanWhole {
		duration = atMost("duration", took.Seconds(), "s", scanWithin.Seconds())
	}
	return []figure{
		free("size", float64(size)/megabyte, "MB"),
		free("files", float64(o.disk*scanFiles), "files"),
		duration,
		free("speed", float64(size)/megabyte/took.Seconds(), "MB/s"),
		// 20 GB within three minutes on two processors.
		atMost("cpu-per-GB", used.Seconds()/(float64(size)/gigabyte), "s", 18),
		atMost("peak-resident", float64(usage.Maxrss)/(1<<10), "MiB", 256),
	}, nil
}

// makeDisk fills a tree as a donor's disk is filled, and gives its size.
func makeDisk(dir, program string, files int) (int64, error) {
	code, err := os.ReadFile(program)
	if err != nil {
		return 0, err
	}
	identity, err := donorIdentity()
	if err != nil {
		return 0, err
	}
	for name, data := range map[string][]byte{
		"etc/os-release": []byte("ID=ubuntu\nPRETTY_NAME=\"Ubuntu 24.04\"\n"),
		"etc/hostname":   []byte(scanDonor + "\n"),
		"etc/machine-id": []byte("0123456789abcdef0123456789abcdef\n"),
		"var/lib/kubelet/pki/kubelet-client-current.pem": identity,
	} {
		if err := writeBelow(dir, name, data); err != nil {
			return 0, err
		}
	}
	texts, err := sources()
	if err != nil {
		return 0, err
	}
	r := rand.New(rand.NewPCG(scanSeed, 0))
	total := int64(0)
	for i := range files {
		n := 1 << (9 + r.IntN(6))
		if i%50 == 0 {
			n = 2 << 20
		}
		var data []byte
		end := ""
		switch r.IntN(10) {
		case 0, 1, 2, 3: // programs and libraries
			at := r.IntN(max(1, len(code)-n))
			data = append([]byte("\x7fELF"), code[at:min(len(code), at+n)]...)
		case 4: // packed
			data = randomBytes(r, n)
		case 5: // certificates, maps of sources
			data = []byte(base64.StdEncoding.EncodeToString(randomBytes(r, n*3/4)))
			for at := 64; at < len(data); at += 65 {
				data[at] = '\n'
			}
		default:
			end, data = prose(r, texts, n)
		}
		below := []string{"usr/lib", "usr/share", "opt", "var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs", "var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/2/fs"}[i%5]
		if err := writeBelow(dir, fmt.Sprintf("%s/%d/%d%s", below, i%200, i, end), data); err != nil {
			return 0, err
		}
		total += int64(len(data))
	}
	return total, nil
}

// donorIdentity is a kubelet's certificate with its key.
func donorIdentity() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + scanDonor, Organization: []string{"system:nodes"}}}
	certificate, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...), nil
}

// sources are the repository's own texts, by their file's ending: documents,
// programs, configuration and logs as people write them. Tests are left out: theirs
// have secrets on purpose.
type source struct {
	end  string
	data []byte
}

func sources() ([]source, error) {
	var all []source
	for _, top := range []string{"docs", "charts", "cmd", "deploy", "internal", "test/kubesim"} {
		err := filepath.WalkDir(top, func(at string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || strings.HasSuffix(at, "_test.go") || strings.Contains(at, "/testdata/") {
				return err
			}
			data, err := os.ReadFile(at) //nolint:gosec // G122: the repository's own files
			if err != nil || len(data) == 0 || bytes.IndexByte(data, 0) >= 0 {
				return err
			}
			all = append(all, source{filepath.Ext(at), data})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no text was found: run this at the top of the repository")
	}
	return all, nil
}

// prose is n bytes of texts of one kind, beginning anywhere in one of them.
func prose(r *rand.Rand, texts []source, n int) (end string, text []byte) {
	first := texts[r.IntN(len(texts))]
	out := append(make([]byte, 0, n), first.data[r.IntN(len(first.data)):]...)
	for len(out) < n {
		if s := texts[r.IntN(len(texts))]; s.end == first.end {
			out = append(out, s.data...)
		}
	}
	return first.end, out[:n]
}

func randomBytes(r *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

func writeBelow(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600) //nolint:gosec // G703: the names are this file's own
}
