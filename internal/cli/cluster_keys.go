package cli

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
)

// keyPair is the result of ortet cluster keys.
type keyPair struct {
	PrivateKey  string `json:"privateKey"`  // file
	PublicKey   string `json:"publicKey"`   // file
	Fingerprint string `json:"fingerprint"` // SHA256:…
}

func newClusterKeys(c *clusterOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "keys",
		Short: "Make the SSH key pair of the cluster's administrator",
		Long: `keys makes an Ed25519 key pair beside cluster.yaml: NAME, the private key without a
passphrase, and NAME.pub. Files that exist are never overwritten.`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			cluster, err := c.read()
			if err != nil {
				return err
			}
			public := c.keyFile(cluster)
			private, found := strings.CutSuffix(public, ".pub")
			if !found {
				return fmt.Errorf("cannot make a key pair: spec.access.sshKey %s does not end in .pub", public)
			}
			pair, err := makeKeys(private, public, "ortet-"+cluster.Metadata.Name)
			if err != nil {
				return err
			}
			return c.print(pair, func(w io.Writer) {
				fmt.Fprintf(w, "Private key: %s\nPublic key:  %s\nFingerprint: %s\n", pair.PrivateKey, pair.PublicKey, pair.Fingerprint)
			})
		},
	}
}

func makeKeys(private, public, comment string) (*keyPair, error) {
	for _, name := range []string{private, public} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot make a key pair: %s exists; it is used as it is, or move it away first", name)
		}
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key pair: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the private key: %w", err)
	}
	p, err := ssh.NewPublicKey(pub)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the public key: %w", err)
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p))) + " " + comment + "\n"
	if err := writeNew(private, pem.EncodeToMemory(block), 0o600); err != nil {
		return nil, err
	}
	if err := writeNew(public, []byte(line), 0o644); err != nil {
		return nil, err
	}
	return &keyPair{private, public, ssh.FingerprintSHA256(p)}, nil
}

// writeNew writes a file that must not exist.
func writeNew(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("cannot write file: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return nil
}

// authorizedKey gives the first line of an authorized_keys file that is a key.
func authorizedKey(data []byte) (string, error) {
	key, comment, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return "", fmt.Errorf("cannot read SSH public key: %w; want a line such as ssh-ed25519 AAAA…", err)
	}
	return strings.TrimSpace(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + comment), nil
}
