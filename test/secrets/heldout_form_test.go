package secrets

import (
	"bytes"
	"compress/zlib"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"unicode/utf16"
)

// Forms in which programs write keys, for the held-out corpus. Each is named after the
// program that writes it, and was read back with that program when it was written.

// heldOutXXD is `xxd FILE`.
func heldOutXXD(data []byte) string {
	var b strings.Builder
	for at := 0; at < len(data); at += 16 {
		row := data[at:min(at+16, len(data))]
		var left, right strings.Builder
		for i, c := range row {
			fmt.Fprintf(&left, "%02x", c)
			if i%2 == 1 {
				left.WriteByte(' ')
			}
			if c < 0x20 || c > 0x7e {
				c = '.'
			}
			right.WriteByte(c)
		}
		fmt.Fprintf(&b, "%08x: %-40s %s\n", at, left.String(), right.String())
	}
	return b.String()
}

// heldOutOD is `od -An -tx1 FILE`.
func heldOutOD(data []byte) string {
	var b strings.Builder
	for at := 0; at < len(data); at += 16 {
		for _, c := range data[at:min(at+16, len(data))] {
			fmt.Fprintf(&b, " %02x", c)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// heldOutC is `xxd -i FILE`.
func heldOutC(name string, data []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "unsigned char %s[] = {\n", name)
	for i, c := range data {
		between := " "
		if i%12 == 0 {
			between = "  "
		}
		fmt.Fprintf(&b, "%s0x%02x", between, c)
		if i < len(data)-1 {
			b.WriteByte(',')
		}
		if i%12 == 11 {
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "\n};\nunsigned int %s_len = %d;\n", name, len(data))
	return b.String()
}

// heldOutColons is a number as `openssl ... -text` writes it: 15 bytes in a line, with a
// byte 00 before it where its first bit is set.
func heldOutColons(name string, number []byte, signed bool) string {
	if signed && number[0]&0x80 != 0 {
		number = append([]byte{0}, number...)
	}
	var b strings.Builder
	b.WriteString(name + ":")
	for i, c := range number {
		if i%15 == 0 {
			b.WriteString("\n    ")
		}
		fmt.Fprintf(&b, "%02x", c)
		if i < len(number)-1 {
			b.WriteByte(':')
		}
	}
	return b.String() + "\n"
}

func heldOutECText(g *gen, key *ecdsa.PrivateKey) string {
	public := check[[]byte](g)(key.PublicKey.Bytes())
	return "Private-Key: (256 bit)\n" + heldOutColons("priv", g.scalar(key), false) + heldOutColons("pub", public, false) +
		"ASN1 OID: prime256v1\nNIST CURVE: P-256\n"
}

func heldOutRSAText(key *rsa.PrivateKey) string {
	return "Private-Key: (2048 bit, 2 primes)\n" + heldOutColons("modulus", key.N.Bytes(), true) + "publicExponent: 65537 (0x10001)\n" +
		heldOutColons("privateExponent", key.D.Bytes(), true) + heldOutColons("prime1", key.Primes[0].Bytes(), true) +
		heldOutColons("prime2", key.Primes[1].Bytes(), true) + heldOutColons("exponent1", key.Precomputed.Dp.Bytes(), true) +
		heldOutColons("exponent2", key.Precomputed.Dq.Bytes(), true) + heldOutColons("coefficient", key.Precomputed.Qinv.Bytes(), true)
}

// heldOutECJWK and heldOutRSAJWK are keys as RFC 7518 has them.
func heldOutECJWK(g *gen, key *ecdsa.PrivateKey) string {
	enc := base64.RawURLEncoding.EncodeToString
	public := check[[]byte](g)(key.PublicKey.Bytes())
	return g.jsonOf(map[string]string{"kty": "EC", "crv": "P-256", "use": "sig", "x": enc(public[1:33]), "y": enc(public[33:]), "d": enc(g.scalar(key))})
}

func heldOutRSAJWK(g *gen, key *rsa.PrivateKey) string {
	enc := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	return g.jsonOf(map[string]any{"keys": []map[string]string{{"kty": "RSA", "alg": "RS256", "kid": g.hex(16), "n": enc(key.N), "e": "AQAB",
		"d": enc(key.D), "p": enc(key.Primes[0]), "q": enc(key.Primes[1]), "dp": enc(key.Precomputed.Dp), "dq": enc(key.Precomputed.Dq), "qi": enc(key.Precomputed.Qinv)}}})
}

// heldOutSwap is what Vim (memline.c) leaves of an edited file on a machine of 64 bits:
// block 0, one pointer block and one data block, in which the lines stand from the
// block's end to its beginning.
func heldOutSwap(file string, content []byte) []byte {
	const page = 4096
	text := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	le := binary.LittleEndian
	head := make([]byte, page)
	copy(head, "b0VIM 9.1")
	le.PutUint32(head[12:], page)
	le.PutUint32(head[16:], uint32(issued.Unix()))
	le.PutUint32(head[20:], 393_411)
	le.PutUint32(head[24:], 2871)
	copy(head[28:], "root")
	copy(head[68:], donorName)
	copy(head[108:], file)
	head[108+899] = 0x55 // changed
	le.PutUint64(head[1008:], 0x30313233)
	le.PutUint32(head[1016:], 0x20212223)
	le.PutUint16(head[1020:], 0x1213)
	head[1022] = 0x55
	pointers := make([]byte, page)
	copy(pointers, "tp")
	le.PutUint16(pointers[2:], 1)
	le.PutUint16(pointers[4:], (page-8)/32)
	le.PutUint64(pointers[8:], 2)
	le.PutUint64(pointers[16:], uint64(len(text)))
	le.PutUint64(pointers[24:], 1)
	le.PutUint32(pointers[32:], 1)
	data := make([]byte, page)
	copy(data, "ad")
	le.PutUint32(data[12:], page)
	le.PutUint64(data[16:], uint64(len(text)))
	start := page
	for i, l := range text {
		start -= len(l) + 1
		copy(data[start:], l)
		le.PutUint32(data[24+4*i:], uint32(start))
	}
	le.PutUint32(data[4:], uint32(start-24-4*len(text)))
	le.PutUint32(data[8:], uint32(start))
	return slices.Concat(head, pointers, data)
}

// heldOutGitObject is a loose object of git and its path within .git.
func heldOutGitObject(g *gen, content []byte) (string, []byte) {
	object := fmt.Appendf(nil, "blob %d\x00%s", len(content), content)
	sum := sha1.Sum(object)
	name := hex.EncodeToString(sum[:])
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	if _, err := w.Write(object); err != nil {
		g.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		g.t.Fatal(err)
	}
	return "objects/" + name[:2] + "/" + name[2:], b.Bytes()
}

// heldOutCPIO is an archive of one file, as an initial RAM disk has it (newc).
func heldOutCPIO(name string, content []byte) []byte {
	var b bytes.Buffer
	entry := func(inode, mode int, name string, content []byte) {
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", inode, mode, 0, 0, 1, issued.Unix(), len(content), 0, 0, 0, 0, len(name)+1, 0)
		b.WriteString(name + "\x00")
		b.Write(make([]byte, -b.Len()&3))
		b.Write(content)
		b.Write(make([]byte, -b.Len()&3))
	}
	entry(1, 0o100600, name, content)
	entry(0, 0, "TRAILER!!!", nil)
	b.Write(make([]byte, -b.Len()&511))
	return b.Bytes()
}

// heldOutCore is a core file with something in its memory at an offset.
func heldOutCore(g *gen, size, at int, content []byte) []byte {
	core := make([]byte, size)
	copy(core, "\x7fELF\x02\x01\x01")
	copy(core[16:], []byte{4, 0, 62, 0, 1, 0, 0, 0})
	copy(core[4096:], g.bytes(2048))
	copy(core[at:], content)
	return core
}

// heldOutWire is a string and heldOutMPInt a number of SSH's wire format (RFC 4251).
func heldOutWire(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func heldOutMPInt(n *big.Int) []byte {
	b := n.Bytes()
	if b[0]&0x80 != 0 {
		b = append([]byte{0}, b...)
	}
	return heldOutWire(b)
}

func heldOutDropbearEd(key ed25519.PrivateKey) []byte {
	return slices.Concat(heldOutWire([]byte("ssh-ed25519")), heldOutWire(key))
}

func heldOutDropbearRSA(key *rsa.PrivateKey) []byte {
	return slices.Concat(heldOutWire([]byte("ssh-rsa")), heldOutMPInt(big.NewInt(int64(key.E))), heldOutMPInt(key.N),
		heldOutMPInt(key.D), heldOutMPInt(key.Primes[0]), heldOutMPInt(key.Primes[1]))
}

// heldOutUTF16 is text as PowerShell's Out-File writes it.
func heldOutUTF16(text string) []byte {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(strings.ReplaceAll(text, "\n", "\r\n"))) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return b
}

// heldOutEach puts something before each line.
func heldOutEach(data []byte, before func(i int) string) string {
	var b strings.Builder
	for i, l := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		b.WriteString(before(i) + l + "\n")
	}
	return b.String()
}

// heldOutPercent is what Ignition and Butane write into data URLs.
func heldOutPercent(data []byte) string {
	var b strings.Builder
	for _, c := range data {
		if strings.IndexByte(base62+"-_.~/", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// heldOutWrapped is base64 in lines, each between two strings.
func heldOutWrapped(data []byte, width int, before, after string) string {
	var b strings.Builder
	for _, l := range lines(base64.StdEncoding.EncodeToString(data), width) {
		b.WriteString(before + l + after)
	}
	return b.String()
}

// heldOutQuoted is a string of JSON or double-quoted YAML.
func heldOutQuoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
