package cli

import (
	"context"
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

func newClusterKeys(c *clusterOptions) *cobra.Command {
	return clusterCommand("keys", "Make the SSH key pair of the cluster's administrator", `keys makes an Ed25519 key pair beside cluster.yaml: NAME, the private key without a
passphrase, and NAME.pub. Files that exist are never overwritten.`, func(context.Context, []string) error {
		cluster, err := c.read()
		if err != nil {
			return err
		}
		public := c.keyFile(cluster)
		private, found := strings.CutSuffix(public, ".pub")
		if !found {
			return fmt.Errorf("cannot make a key pair: spec.access.sshKey %s does not end in .pub", public)
		}
		fingerprint, err := makeKeys(private, public, "ortet-"+cluster.Metadata.Name)
		if err != nil {
			return fmt.Errorf("cannot make a key pair: %w", err)
		}
		return c.print(map[string]string{"privateKey": private, "publicKey": public, "fingerprint": fingerprint}, func(w io.Writer) {
			fmt.Fprintf(w, "Private key: %s\nPublic key:  %s\nFingerprint: %s\n", private, public, fingerprint)
		})
	})
}

func makeKeys(private, public, comment string) (fingerprint string, err error) {
	for _, name := range []string{private, public} {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s exists; it is used as it is, or move it away first", name)
		}
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	block, err := ssh.MarshalPrivateKey(key, comment)
	if err != nil {
		return "", err
	}
	p, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", err
	}
	if err := writeNew(private, pem.EncodeToMemory(block), 0o600); err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(p))) + " " + comment + "\n"
	return ssh.FingerprintSHA256(p), writeNew(public, []byte(line), 0o644)
}

// writeNew writes a file that must not exist.
func writeNew(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot write file: %w", err)
	}
	return nil
}

// readPublicKey reads the first line of an authorized_keys file that is a key.
func readPublicKey(name string) (string, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read SSH public key %s: no such file; make a key pair with ortet cluster keys, or set spec.access.sshKey", name)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read SSH public key: %w", err)
	}
	key, comment, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return "", fmt.Errorf("cannot read SSH public key %s: %w; want a line such as ssh-ed25519 AAAA…", name, err)
	}
	return strings.TrimSpace(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + comment), nil
}
