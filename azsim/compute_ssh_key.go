package azsim

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"math/big"
	"strings"
)

// sshKeyType is by documentation (azure-rest-api-specs, compute: sshPublicKeys): no recording
// has one.
func sshKeyType() *resourceType {
	rt := storedType("Microsoft.Compute/sshPublicKeys", scaleSetVersions()[3:], &storedRules{
		tracked: true,
		check: func(_ *call, d *draft) error {
			if key := text(d.properties(), "publicKey"); key != "" && !isPublicKey(key) {
				return badParameter("publicKey", "The value of parameter publicKey is invalid: it is no OpenSSH public key.")
			}
			return nil
		},
		show: func(_ *Server, _ *entry, out object) { delete(out["properties"].(object), "provisioningState") },
	})
	rt.actions = map[string]handler{"generatekeypair": generateKeyPair}
	return rt
}

func isPublicKey(line string) bool {
	parts := strings.Fields(line)
	if len(parts) < 2 {
		return false
	}
	blob, err := base64.StdEncoding.DecodeString(parts[1])
	return err == nil && strings.HasPrefix(string(blob), string(sshField([]byte(parts[0]))))
}

// sshField is a string of SSH's wire format (RFC 4251).
func sshField(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) // #nosec G115 -- of a key
}

// generateKeyPair makes an RSA key pair of 3072 bits, stores its public half and answers both.
func generateKeyPair(c *call) (*reply, error) {
	e, err := c.need()
	if err != nil {
		return nil, err
	}
	body, err := decode[struct {
		EncryptionType string `json:"encryptionType"`
	}](c)
	if err != nil {
		return nil, err
	}
	if kind := body.EncryptionType; kind != "" && !strings.EqualFold(kind, "RSA") {
		return nil, badParameter("encryptionType", "azsim makes no key pairs of type '%s': use RSA.", kind)
	}
	return &reply{later: func(context.Context) (*reply, error) {
		key, err := rsa.GenerateKey(rand.Reader, 3072)
		if err != nil {
			return nil, err
		}
		blob := sshField([]byte("ssh-rsa"))
		for _, n := range []*big.Int{big.NewInt(int64(key.E)), key.N} { // a leading zero keeps it positive
			blob = append(blob, sshField(append(make([]byte, 1-(n.BitLen()%8+7)/8), n.Bytes()...))...)
		}
		public := "ssh-rsa " + base64.StdEncoding.EncodeToString(blob) + " generated-by-azure"
		c.s.locked(func() { e.body.(object)["properties"].(object)["publicKey"] = public })
		private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
		return ok(object{"id": e.id.String(), "publicKey": public, "privateKey": string(private)}), nil
	}}, nil
}
