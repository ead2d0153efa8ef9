package secrets

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

var issued = time.Date(2026, 11, 20, 7, 0, 0, 0, time.UTC)

func (g *gen) ec() *ecdsa.PrivateKey {
	return check[*ecdsa.PrivateKey](g)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
}

func (g *gen) rsa() *rsa.PrivateKey {
	return check[*rsa.PrivateKey](g)(rsa.GenerateKey(rand.Reader, 2048))
}

func (g *gen) ed() ed25519.PrivateKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		g.t.Fatal(err)
	}
	return key
}

func armor(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (g *gen) pkcs8(key crypto.PrivateKey) []byte {
	return check[[]byte](g)(x509.MarshalPKCS8PrivateKey(key))
}

func (g *gen) sec1(key *ecdsa.PrivateKey) []byte {
	return check[[]byte](g)(x509.MarshalECPrivateKey(key))
}

func (g *gen) ecPEM(key *ecdsa.PrivateKey) []byte { return armor("EC PRIVATE KEY", g.sec1(key)) }

func (g *gen) scalar(key *ecdsa.PrivateKey) []byte { return check[[]byte](g)(key.Bytes()) }

func rsaPEM(key *rsa.PrivateKey) []byte {
	return armor("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

func (g *gen) pkcs8PEM(key crypto.PrivateKey) []byte { return armor("PRIVATE KEY", g.pkcs8(key)) }

func (g *gen) opensshPEM(key crypto.PrivateKey, comment string) []byte {
	return pem.EncodeToMemory(check[*pem.Block](g)(ssh.MarshalPrivateKey(key, comment)))
}

func (g *gen) sshPublic(key crypto.Signer) string {
	return string(ssh.MarshalAuthorizedKey(check[ssh.PublicKey](g)(ssh.NewPublicKey(key.Public()))))
}

// certificate is one of the name and organisation for the key, signed by itself.
func (g *gen) certificate(name, organization string, key crypto.Signer) []byte {
	template := &x509.Certificate{SerialNumber: new(big.Int).SetBytes(g.bytes(15)), Subject: pkix.Name{CommonName: name},
		NotBefore: issued, NotAfter: issued.AddDate(1, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if organization != "" {
		template.Subject.Organization = []string{organization}
	}
	return armor("CERTIFICATE", check[[]byte](g)(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)))
}

// der is an object's encoding; what it is given can always be encoded.
func (g *gen) der(v any) []byte { return check[[]byte](g)(asn1.Marshal(v)) }

func explicit(tag int, inner []byte) asn1.RawValue {
	return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, IsCompound: true, Bytes: inner}
}

type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue
}

func (g *gen) pfx(bag contentInfo) []byte {
	data := asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	safe := g.der([]contentInfo{{data, explicit(0, g.der(g.der([]contentInfo{bag})))}})
	type algorithm struct {
		ID   asn1.ObjectIdentifier
		Null asn1.RawValue
	}
	type digest struct {
		Algorithm algorithm
		Sum       []byte
	}
	type mac struct {
		Digest digest
		Salt   []byte
		Rounds int
	}
	return g.der(struct {
		Version int
		Safe    contentInfo
		Mac     mac
	}{3, contentInfo{data, explicit(0, g.der(safe))},
		mac{digest{algorithm{asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}, asn1.NullRawValue}, g.bytes(32)}, g.bytes(8), 2048}})
}

// plainPFX holds a key as `openssl pkcs12 -export -keypbe NONE` writes it.
func (g *gen) plainPFX(key crypto.PrivateKey) []byte {
	return g.pfx(contentInfo{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 1}, explicit(0, g.pkcs8(key))})
}

// lockedPFX holds a key that nobody can open: its cipher text is random.
func (g *gen) lockedPFX() []byte {
	type parameters struct {
		Salt   []byte
		Rounds int
	}
	type algorithm struct {
		ID         asn1.ObjectIdentifier
		Parameters parameters
	}
	shrouded := g.der(struct {
		Algorithm algorithm
		Data      []byte
	}{algorithm{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 1, 3}, parameters{g.bytes(8), 2048}}, g.bytes(1232)})
	return g.pfx(contentInfo{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 12, 10, 1, 2}, explicit(0, shrouded)})
}

// keytab is MIT's file format, version 2, with one AES-256 key.
func (g *gen) keytab(realm string, parts ...string) []byte {
	counted := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	entry := binary.BigEndian.AppendUint16(nil, uint16(len(parts)))
	entry = counted(entry, realm)
	for _, p := range parts {
		entry = counted(entry, p)
	}
	entry = binary.BigEndian.AppendUint32(entry, 1)
	entry = binary.BigEndian.AppendUint32(entry, uint32(issued.Unix()))
	entry = append(entry, 2)
	entry = binary.BigEndian.AppendUint16(entry, 18)
	entry = counted(entry, string(g.bytes(32)))
	return append(binary.BigEndian.AppendUint32([]byte{5, 2}, uint32(len(entry))), entry...)
}

// jks is the beginning and the form of a Java key store with one private key.
func (g *gen) jks() []byte {
	b := binary.BigEndian.AppendUint32(nil, 0xfeedfeed)
	b = binary.BigEndian.AppendUint32(b, 2)
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, 1) // a private key
	b = append(binary.BigEndian.AppendUint16(b, 6), "client"...)
	b = binary.BigEndian.AppendUint64(b, uint64(issued.UnixMilli()))
	sealed := g.bytes(1300)
	b = binary.BigEndian.AppendUint32(b, uint32(len(sealed)))
	return append(append(b, sealed...), g.bytes(20)...)
}

func lines(text string, width int) []string {
	var out []string
	for ; len(text) > width; text = text[width:] {
		out = append(out, text[:width])
	}
	return append(out, text)
}

// putty is an ed25519 key as puttygen writes it, version 3.
func (g *gen) putty(key ed25519.PrivateKey, comment string) []byte {
	public := strings.Fields(g.sshPublic(key))[1]
	private := base64.StdEncoding.EncodeToString(append([]byte{0, 0, 0, 32}, key.Seed()...))
	pub := lines(public, 64)
	return fmt.Appendf(nil, "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: %s\nPublic-Lines: %d\n%s\nPrivate-Lines: 1\n%s\nPrivate-MAC: %s\n",
		comment, len(pub), strings.Join(pub, "\n"), private, g.hex(64))
}

// pgp is a private key block of RSA, without a passphrase; its numbers are random.
func (g *gen) pgp() []byte {
	number := func(bytes int) []byte {
		b := g.bytes(bytes)
		b[0] |= 0x80
		return append(binary.BigEndian.AppendUint16(nil, uint16(8*bytes)), b...)
	}
	packet := binary.BigEndian.AppendUint32([]byte{0x95, 0x03, 0x98, 4}, uint32(issued.Unix()))
	packet = slices.Concat(packet, []byte{1}, number(256), []byte{0, 17, 1, 0, 1, 0}, number(256), number(128), number(128), number(128), g.bytes(2))
	crc := uint32(0xb704ce)
	for _, b := range packet {
		crc ^= uint32(b) << 16
		for range 8 {
			if crc <<= 1; crc&0x1000000 != 0 {
				crc ^= 0x1864cfb
			}
		}
	}
	sum := base64.StdEncoding.EncodeToString([]byte{byte(crc >> 16), byte(crc >> 8), byte(crc)})
	return fmt.Appendf(nil, "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n%s\n=%s\n-----END PGP PRIVATE KEY BLOCK-----\n",
		strings.Join(lines(base64.StdEncoding.EncodeToString(packet), 64), "\n"), sum)
}

// lockedPEM is a key that is encrypted by a passphrase, as `openssl genpkey -aes256` writes it.
func (g *gen) lockedPEM() []byte {
	type pair struct {
		ID         asn1.ObjectIdentifier
		Parameters []byte
	}
	return armor("ENCRYPTED PRIVATE KEY", g.der(struct {
		Algorithm pair
		Data      []byte
	}{pair{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}, g.bytes(70)}, g.bytes(1232)}))
}

func (g *gen) public(key any) []byte { return check[[]byte](g)(x509.MarshalPKIXPublicKey(key)) }
