package join

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ortet/ortet/internal/node/tree"
)

// formerCA is what is added to the name of a client CA's file that is replaced.
const formerCA = ".before-ortet"

// writeClientCA writes the CA by which the kubelet knows its cluster's clients. An existing
// file may be another cluster's, whose clients the kubelet would let in and this one's not:
// it is replaced, and a copy kept. One that has the CA among others stays: it may be an
// authority that takes over, or one for clients alone.
func (c *Client) writeClientCA(t *tree.Tree, granted []byte) error {
	path := c.settings.Kubelet.ClientCA
	there, err := t.ReadFile(path, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return put(t, path, granted)
	}
	if err != nil {
		return fmt.Errorf("reading the kubelet's client CA: %w", err)
	}
	missing, held := false, blocks(there)
	more := held
	for _, g := range blocks(granted) {
		missing = missing || len(without(held, g)) == len(held)
		more = without(more, g)
	}
	if !missing {
		if len(more) > 0 {
			c.options.Log.Warn("the kubelet lets in clients of other CAs beside the cluster's", "file", path, "others", len(more))
		}
		return nil
	}
	c.options.Log.Warn("the kubelet's client CA is not the cluster's, as of another cluster; it is replaced", "file", path, "kept", path+formerCA)
	if err := put(t, path+formerCA, there); err != nil {
		return err
	}
	// It keeps its mode: there is no secret in it.
	return t.WriteFile(path, granted, 0o600)
}

// blocks are the contents of a PEM text, whatever stands between.
func blocks(text []byte) (all [][]byte) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		all = append(all, block.Bytes)
	}
}

// without takes all that are equal to one away.
func without(all [][]byte, one []byte) (rest [][]byte) {
	for _, b := range all {
		if !bytes.Equal(b, one) {
			rest = append(rest, b)
		}
	}
	return rest
}
