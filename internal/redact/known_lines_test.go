package redact

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// lineForms are what programs write around each line of a text.
func lineForms() map[string]func(i int, line string) string {
	return map[string]func(int, string) string{
		"syslog": func(i int, l string) string {
			return fmt.Sprintf("Nov 25 07:10:%02d aks-nodepool1-12345678-vmss000000 kubelet[1203]: %s", i%60, l)
		},
		"container's log": func(i int, l string) string {
			return fmt.Sprintf("2026-11-25T07:10:%02d.123456789Z stdout F %s", i%60, l)
		},
		"klog": func(i int, l string) string {
			return fmt.Sprintf("I1125 07:10:%02d.123456    1203 certificate_manager.go:%d] %s", i%60, i+100, l)
		},
		"diff":             func(_ int, l string) string { return "+" + l },
		"removed lines":    func(_ int, l string) string { return "-" + l },
		"cat -n":           func(i int, l string) string { return fmt.Sprintf("%6d\t%s", i+1, l) },
		"grep -n":          func(i int, l string) string { return fmt.Sprintf("%d:%s", i+1, l) },
		"colour":           func(_ int, l string) string { return "\x1b[32m" + l + "\x1b[0m" },
		"colour by syslog": func(_ int, l string) string { return "#033[01;32m" + l + "#033[0m" },
		"colour of a diff": func(_ int, l string) string { return "\x1b[32m+\x1b[m\x1b[32m" + l + "\x1b[m" },
		"trace":            func(_ int, l string) string { return "+ " + l },
		"trace of echo":    func(_ int, l string) string { return "+ echo '" + l + "'" },
		"suffix":           func(i int, l string) string { return fmt.Sprintf("%s   # kubelet-client-current.pem:%d", l, i+1) },
	}
}

func eachLine(text []byte, form func(int, string) string) []byte {
	var b strings.Builder
	for i, l := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		b.WriteString(form(i, l) + "\n")
	}
	return []byte(b.String())
}

// inWidth is a PEM block with lines of another width.
func inWidth(block []byte, width int) []byte {
	l := strings.Split(strings.TrimSpace(string(block)), "\n")
	last := len(l) - 1
	return fmt.Appendf(nil, "%s\n%s\n%s\n", l[0], breakLines(strings.Join(l[1:last], ""), width, "\n"), l[last])
}

// pemKeys are keys as PEM, of all kinds that a node has.
func pemKeys(t *testing.T) map[string][]byte {
	t.Helper()
	r := must(rsa.GenerateKey(crand.Reader, 2048))
	_, d, err := ed25519.GenerateKey(crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{
		"RSA":              pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(r)),
		"RSA, PKCS#8":      pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(r))),
		"RSA, OpenSSH":     pem.EncodeToMemory(must(ssh.MarshalPrivateKey(r, "root@node"))),
		"Ed25519, PKCS#8":  pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(d))),
		"Ed25519, OpenSSH": pem.EncodeToMemory(must(ssh.MarshalPrivateKey(d, "root@node"))),
	}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384()} {
		e := must(ecdsa.GenerateKey(curve, crand.Reader))
		all[curve.Params().Name+", SEC 1"] = pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(e)))
		all[curve.Params().Name+", PKCS#8"] = pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(e)))
	}
	return all
}

// A key is found by value whatever is around each of its lines, also where an end of a
// line is within the number that it is known by.
func TestKnownFindsKeyInPrefixedLines(t *testing.T) {
	for kind, key := range pemKeys(t) {
		k := known(t, key)
		for form, write := range lineForms() {
			for _, width := range []int{40, 64, 76} {
				if hits := k.Find(Piece{Data: eachLine(inWidth(key, width), write)}); len(hits) != 1 {
					t.Errorf("%s, %s, lines of %d: got %d hits, want 1", kind, form, width, len(hits))
				}
			}
		}
	}
}

// Whatever Find finds by form, FindKeys compares: in lines too short to hold half of the
// number, and in base64 of PEM.
func TestFindKeysComparesWhatIsFoundByForm(t *testing.T) {
	compared := 0
	for kind, key := range pemKeys(t) {
		k := known(t, key)
		for form, write := range lineForms() {
			for width := 24; width < 80; width += 4 {
				for wrapping, text := range map[string][]byte{
					"PEM":    inWidth(key, width),
					"base64": breakLines(base64.StdEncoding.EncodeToString(key), width, "\n"),
				} {
					before := []byte("two lines\nbefore the key\n")
					p := Piece{Path: "srv/node.log", Data: append(before, eachLine(text, write)...), Whole: true}
					byForm := Find(p)
					if len(byForm) == 0 {
						continue
					}
					compared++
					own := k.FindKeys(p, byForm)
					if len(own) != 1 || own[0].Rule != "secret-0" || own[0].From < len(before) {
						t.Errorf("%s, %s, %s in lines of %d: got %v, want one hit of the own key", kind, form, wrapping, width, own)
					}
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("%d texts have a key by its form, want 1000 at least", compared)
	}
}

// Another's key behind the same prefixes is not the donor's.
func TestFindKeysPassesOtherKeys(t *testing.T) {
	own, other := pemKeys(t), pemKeys(t)
	for kind, key := range own {
		k := known(t, key)
		for form, write := range lineForms() {
			p := Piece{Path: "srv/node.log", Data: eachLine(other[kind], write), Whole: true}
			byForm := Find(p)
			if len(byForm) == 0 {
				t.Errorf("%s, %s: not found by form", kind, form)
			}
			if hits := append(k.Find(p), k.FindKeys(p, byForm)...); len(hits) > 0 {
				t.Errorf("%s, %s: got %v, want nothing", kind, form, hits)
			}
		}
	}
}

// Many keys of others in front do not hide the own one, and its hit says where it lies.
func TestFindKeysSaysWhichKey(t *testing.T) {
	own := pemKeys(t)["P-256, PKCS#8"]
	var data []byte
	for _, key := range pemKeys(t) {
		data = append(data, eachLine(key, lineForms()["diff"])...)
	}
	begin := len(data)
	data = append(data, eachLine(inWidth(own, 28), lineForms()["diff"])...)
	p := Piece{Path: "srv/all.diff.log", Data: data, Whole: true}
	hits := known(t, own).FindKeys(p, Find(p))
	if len(hits) != 1 || hits[0].From < begin || !bytes.HasPrefix(data[hits[0].From:], []byte("-----BEGIN PRIVATE KEY-----")) {
		t.Errorf("got %v, want one hit at %d or behind", hits, begin)
	}
}
