package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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

// BenchmarkScan is what it costs the agent to scan a copy of a node's disk for secrets. The
// tree is made anew: programs are parts of our own, texts are the repository's, packed
// and encoded files are generated; two fifths of it lie in image layers. A node's disk
// has scanWhole GB: only a tree of that size has its time judged.
func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	size := float64(makeDisk(b, dir, *disk*scanFiles))
	for b.Loop() {
		cmd := exec.CommandContext(b.Context(), filepath.Join(*bin, "ortet-node"), "generalize", "--root", dir, "--dry-run",
			"--capture", "bench", "--donor", scanDonor, "--at", "2026-01-01T00:00:00Z")
		var out bytes.Buffer
		cmd.Stdout = &out
		begun := time.Now()
		// Programs' texts have examples of secrets, for which the disk is refused: the agent
		// has scanned all of it then too.
		if err := cmd.Run(); err != nil && (cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != scanRefused) {
			b.Fatalf("%v: %s", err, out.Bytes()[max(0, out.Len()-2000):])
		}
		took := time.Since(begun)
		used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		const megabyte, gigabyte = 1e6, 1e9
		duration := free("duration", took.Seconds(), "s")
		if *disk >= scanWhole {
			duration = atMost("duration", took.Seconds(), "s", scanWithin.Seconds())
		}
		report(b, "scan",
			free("size", size/megabyte, "MB"),
			free("files", float64(*disk*scanFiles), "files"),
			duration,
			free("speed", size/megabyte/took.Seconds(), "MB/s"),
			// 20 GB within three minutes on two processors.
			atMost("cpu-per-GB", used.Seconds()/(size/gigabyte), "s", 18),
			atMost("peak-resident", float64(usage.Maxrss)/(1<<10), "MiB", 256),
		)
	}
}

// makeDisk fills a tree as a donor's disk is filled, and returns its size.
func makeDisk(b *testing.B, dir string, files int) (total int64) {
	b.Helper()
	code, err := os.ReadFile(filepath.Join(*bin, "ortet"))
	if err != nil {
		b.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"etc/os-release": []byte("ID=ubuntu\nPRETTY_NAME=\"Ubuntu 24.04\"\n"),
		"etc/hostname":   []byte(scanDonor + "\n"),
		"etc/machine-id": []byte("0123456789abcdef0123456789abcdef\n"),
		"var/lib/kubelet/pki/kubelet-client-current.pem": donorIdentity(b),
	} {
		writeBelow(b, dir, name, data)
	}
	texts := sources(b)
	r := rand.New(rand.NewPCG(scanSeed, 0))
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
		writeBelow(b, dir, fmt.Sprintf("%s/%d/%d%s", below, i%200, i, end), data)
		total += int64(len(data))
	}
	return total
}

// donorIdentity is a kubelet's certificate with its key.
func donorIdentity(b *testing.B) []byte {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + scanDonor, Organization: []string{"system:nodes"}}}
	certificate, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		b.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		b.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...)
}

// sources are the repository's own texts, by their file's ending: documents,
// programs, configuration and logs as people write them. Tests are left out: theirs
// have secrets on purpose.
type source struct {
	end  string
	data []byte
}

func sources(b *testing.B) (all []source) {
	b.Helper()
	for _, top := range []string{"docs", "charts", "cmd", "deploy", "internal", "test/kubesim"} {
		err := filepath.WalkDir("../"+top, func(at string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || strings.HasSuffix(at, "_test.go") || strings.Contains(at, "/testdata/") {
				return err
			}
			data, err := os.ReadFile(at)
			if err != nil || len(data) == 0 || bytes.IndexByte(data, 0) >= 0 {
				return err
			}
			all = append(all, source{filepath.Ext(at), data})
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return all
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

func writeBelow(b *testing.B, dir, name string, data []byte) {
	b.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.Fatal(err)
	}
}
