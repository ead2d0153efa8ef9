package secrets

import (
	"bytes"
	"compress/zlib"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Forms in which programs write keys, for the blind corpus.

// blindEach writes each line of a text by a format with one %s.
func blindEach(text []byte, format string) string {
	var b strings.Builder
	for _, l := range blindLines(text) {
		fmt.Fprintf(&b, format, l)
	}
	return b.String()
}

func blindLines(text []byte) []string {
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// blindTcpdump is what `tcpdump -X` prints of a packet: 40 bytes of headers before the data.
func blindTcpdump(g *gen, data []byte) string {
	packet := append(append([]byte{0x45, 0}, g.bytes(38)...), data...)
	var b strings.Builder
	b.WriteString("07:00:01.219482 IP 10.240.0.4.51422 > 10.240.0.9.8080: Flags [P.], seq 1:1400, ack 1, win 502, length 1400\n")
	for at := 0; at < len(packet); at += 16 {
		row := packet[at:min(at+16, len(packet))]
		fmt.Fprintf(&b, "\t0x%04x: ", at)
		for i := 0; i < 16; i += 2 {
			switch {
			case i+1 < len(row):
				fmt.Fprintf(&b, " %02x%02x", row[i], row[i+1])
			case i < len(row):
				fmt.Fprintf(&b, " %02x  ", row[i])
			default:
				b.WriteString("     ")
			}
		}
		b.WriteString("  ")
		for _, c := range row {
			if c < 0x20 || c > 0x7e {
				c = '.'
			}
			b.WriteByte(c)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// blindGDB is gdb's `x/Nxb ADDRESS`.
func blindGDB(data []byte) string {
	var b strings.Builder
	for at := 0; at < len(data); at += 8 {
		fmt.Fprintf(&b, "0x%x:", 0xc000416000+at)
		for _, c := range data[at:min(at+8, len(data))] {
			fmt.Fprintf(&b, "\t0x%02x", c)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// blindDecimal is Go's `%v` of bytes.
func blindDecimal(data []byte) string { return fmt.Sprintf("%v", data) }

// blindUU is `uuencode`.
func blindUU(name string, data []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "begin 600 %s\n", name)
	letter := func(v byte) byte {
		if v == 0 {
			return '`'
		}
		return v + ' '
	}
	for at := 0; at < len(data); at += 45 {
		row := data[at:min(at+45, len(data))]
		b.WriteByte(letter(byte(len(row))))
		for len(row)%3 != 0 {
			row = append(slices.Clone(row), 0)
		}
		for i := 0; i < len(row); i += 3 {
			b.Write([]byte{letter(row[i] >> 2), letter(row[i]<<4&0x3f | row[i+1]>>4), letter(row[i+1]<<2&0x3f | row[i+2]>>6), letter(row[i+2] & 0x3f)})
		}
		b.WriteByte('\n')
	}
	return b.String() + "`\nend\n"
}

// blindAge is what ssh-to-age makes of an SSH key: the same number in bech32.
func blindAge(key ed25519.PrivateKey) string {
	sum := sha512.Sum512(key.Seed())
	scalar := sum[:32]
	scalar[0] &= 248
	scalar[31] = scalar[31]&127 | 64
	const letters = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
	const prefix = "age-secret-key-"
	var five []byte
	var acc, bits uint
	for _, c := range scalar {
		acc, bits = acc<<8|uint(c), bits+8
		for ; bits >= 5; bits -= 5 {
			five = append(five, byte(acc>>(bits-5)&31))
		}
	}
	if bits > 0 {
		five = append(five, byte(acc<<(5-bits)&31))
	}
	var values []byte
	for i := range len(prefix) {
		values = append(values, prefix[i]>>5)
	}
	values = append(values, 0)
	for i := range len(prefix) {
		values = append(values, prefix[i]&31)
	}
	values = append(append(values, five...), 0, 0, 0, 0, 0, 0)
	sumOf := uint32(1)
	for _, v := range values {
		top := sumOf >> 25
		sumOf = sumOf&0x1ffffff<<5 ^ uint32(v)
		for i, k := range []uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
			if top>>i&1 == 1 {
				sumOf ^= k
			}
		}
	}
	sumOf ^= 1
	for i := range 6 {
		five = append(five, byte(sumOf>>(5*(5-i))&31))
	}
	var b strings.Builder
	b.WriteString(prefix + "1")
	for _, v := range five {
		b.WriteByte(letters[v])
	}
	return strings.ToUpper(b.String())
}

// blindPack is a pack of git with one object, not a delta.
func blindPack(g *gen, content []byte) []byte {
	pack := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01")
	size := len(content)
	head := byte(3<<4 | size&15)
	for size >>= 4; size > 0; size >>= 7 {
		pack = append(pack, head|0x80)
		head = byte(size & 0x7f)
	}
	pack = append(pack, head)
	pack = append(pack, g.zlib(content)...)
	sum := sha1.Sum(pack)
	return append(pack, sum[:]...)
}

func (g *gen) zlib(data []byte) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		g.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		g.t.Fatal(err)
	}
	return b.Bytes()
}

// blindSQLite is a database's head and one row on a page; spill bytes of the row's
// value lie on that page and the rest on an overflow page, behind its four bytes of the next.
func blindSQLite(g *gen, value []byte, spill int) []byte {
	const page = 4096
	head := make([]byte, page)
	copy(head, "SQLite format 3\x00\x10\x00\x01\x01\x00\x40\x20\x20")
	copy(head[200:], "CREATE TABLE kine (id INTEGER PRIMARY KEY AUTOINCREMENT, name INTEGER, value BLOB)")
	leaf := make([]byte, page)
	leaf[0] = 13
	binary.BigEndian.PutUint16(leaf[3:], 1)
	if spill >= len(value) {
		copy(leaf[page-len(value)-8:], value)
		return slices.Concat(head, leaf)
	}
	copy(leaf[page-4-spill:], value[:spill])
	binary.BigEndian.PutUint32(leaf[page-4:], 3)
	over := make([]byte, page)
	copy(over[4:], value[spill:])
	return slices.Concat(head, leaf, over, g.bytes(page))
}

// blindBIND is a key file of DNSSEC for ECDSA P-256, as dnssec-keygen writes it.
func blindBIND(g *gen, key *ecdsa.PrivateKey) string {
	return "Private-key-format: v1.3\nAlgorithm: 13 (ECDSAP256SHA256)\nPrivateKey: " + base64.StdEncoding.EncodeToString(g.scalar(key)) + "\nCreated: 20261120070000\n"
}

// blindISO is an image of a disk: sectors of nothing, then a file at a sector's start.
func blindISO(content []byte) []byte {
	image := make([]byte, 40*2048)
	copy(image[16*2048:], "\x01CD001\x01\x00LINUX                           cidata")
	return append(append(image, content...), make([]byte, 2048-len(content)%2048)...)
}

// blindTMPFiles escapes what a line of tmpfiles.d or a unit must not hold as it is.
func blindTMPFiles(text []byte) string {
	return strings.NewReplacer("\n", `\n`, " ", `\x20`).Replace(string(text))
}

func blindDashed(machine string) string {
	b, err := hex.DecodeString(machine)
	if err != nil {
		return machine
	}
	s := hex.EncodeToString(b)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
