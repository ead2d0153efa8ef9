package cli

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/nodeconfig"
)

// defaultConfigKey is the private key's file where --key names no other.
const defaultConfigKey = "ortet-config.key"

func newConfigKeygen(c *configOptions) *cobra.Command {
	out, existing := defaultConfigKey, ""
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make the key that signs configurations",
		Long: `keygen makes an ed25519 key and writes the private key as PKCS#8 PEM, readable by you
alone. It prints the public key, and what nodes need to accept it. A file that exists
is never overwritten; --public prints the same of a key that you have.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if existing != "" {
				if cmd.Flags().Changed("out") {
					return usagef("--out and --public exclude each other: --public makes no key")
				}
				key, err := readSigningKey(existing)
				if err != nil {
					return err
				}
				return c.printPublicKey(key, existing, false)
			}
			_, key, err := ed25519.GenerateKey(rand.Reader)
			if err != nil {
				return fmt.Errorf("cannot make key: %w", err)
			}
			der, err := x509.MarshalPKCS8PrivateKey(key)
			if err != nil {
				return fmt.Errorf("cannot make key: %w", err)
			}
			if err := writeNew(out, pem.EncodeToMemory(&pem.Block{Type: pemPKCS8, Bytes: der}), 0o600); err != nil {
				return err
			}
			return c.printPublicKey(key, out, true)
		},
	}
	cmd.Flags().StringVar(&out, "out", out, "`FILE` for the private key")
	cmd.Flags().StringVar(&existing, "public", "", "`FILE` of an existing private key, whose public key is printed")
	return cmd
}

// A publicKey is what keygen prints.
type publicKey struct {
	File        string               `json:"file"` // of the private key
	PublicKey   nodeconfig.PublicKey `json:"publicKey"`
	Settings    string               `json:"settings"`    // content of /etc/ortet/config.json
	CloudConfig string               `json:"cloudConfig"` // customData that writes it
}

func (c *configOptions) printPublicKey(key ed25519.PrivateKey, file string, made bool) error {
	k := publicKey{File: file, PublicKey: nodeconfig.PublicKeyOf(key.Public().(ed25519.PublicKey))}
	settings, err := json.Marshal(map[string]any{"keys": []nodeconfig.PublicKey{k.PublicKey}})
	if err != nil {
		return fmt.Errorf("encode settings: %w", err)
	}
	k.Settings = string(settings) + "\n"
	k.CloudConfig = "#cloud-config\nwrite_files:\n  - path: /etc/ortet/config.json\n    permissions: \"0644\"\n    content: |\n      " + k.Settings
	return c.print(k, func(w io.Writer) {
		if made {
			say(w, "Wrote %s, the private key. Who has it can configure the pool's nodes: keep it out of the image, the cluster and the repository.", file)
		}
		fmt.Fprintf(w, "Public key: %s\n\n", k.PublicKey)
		say(w, "Nodes that accept it have this file, /etc/ortet/config.json (owner root, mode 0644), in their image:")
		fmt.Fprintf(w, "\n%s\n", k.Settings)
		fmt.Fprintf(w, "or from the scale set's customData, which cloud-init reads:\n\n%s", k.CloudConfig)
	})
}

const pemPKCS8 = "PRIVATE KEY"

// readSigningKey reads an ed25519 key in PKCS#8 PEM. As ssh does, it refuses a file that
// others than its owner can read.
func readSigningKey(name string) (ed25519.PrivateKey, error) {
	key, err := parseSigningKey(name)
	return key, refuseFile(name, err)
}

func parseSigningKey(name string) (ed25519.PrivateKey, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read key: %w; make one with ortet config keygen, or name one with --key", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read key: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("cannot use key %s: mode %04o lets others read it; run chmod 600 %s", name, mode, name)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read key: %w", err)
	}
	const want = "want an ed25519 key in PKCS#8 PEM without a passphrase, as ortet config keygen makes it"
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("cannot read key %s: file is not PEM; %s", name, want)
	}
	if block.Type != pemPKCS8 {
		return nil, fmt.Errorf("cannot read key %s: PEM is %q; %s", name, block.Type, want)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read key %s: %w; %s", name, err, want)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("cannot read key %s: key is %T; %s", name, parsed, want)
	}
	return key, nil
}
