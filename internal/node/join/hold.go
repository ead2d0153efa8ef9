package join

import (
	"errors"

	"github.com/ortet/ortet/internal/node/tree"
)

// LeavingFile means that this machine leaves: while it exists nothing joins. It is in
// memory, so that another boot begins without it.
const LeavingFile = "/run/ortet/leaving"

// errLeaving is why a machine that leaves does not join.
var errLeaving = errors.New("this machine leaves: it joins once " + LeavingFile + " is gone, which ortet-node events takes away if it stays after all")

// Hold keeps this machine from joining, whoever asks for it, until Release or another
// boot. A join that is under way ends before it lets an agent start. Again is
// harmless.
func (c *Client) Hold() error {
	return c.onDisk(func(t *tree.Tree) error { return put(t, LeavingFile, nil) })
}

// Release undoes Hold; a join that waits goes on. Again is harmless.
func (c *Client) Release() error {
	return c.onDisk(func(t *tree.Tree) error {
		_, err := t.Remove(LeavingFile)
		return err
	})
}

// onDisk does something on this machine's disk.
func (c *Client) onDisk(do func(*tree.Tree) error) error {
	t, err := tree.Open(root(c.options.Root))
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }() // what was written was synced
	return do(t)
}

// held is errLeaving while this machine leaves.
func (a *attempt) held() error {
	there, err := a.t.Exists(LeavingFile)
	switch {
	case err != nil:
		return here(err)
	case there:
		return errLeaving
	}
	return nil
}

// mayStartAgain reports that the agent may start though this machine leaves: it was let
// start in this boot, with an identity that serves and was not given up since. Without it
// the pods that are being drained would not end.
func (a *attempt) mayStartAgain() (bool, error) {
	was, err := a.t.Exists(ReadyFile)
	if err != nil {
		return false, here(err)
	}
	if !was {
		return false, nil
	}
	record, err := readRecord(a.t)
	if err != nil {
		return false, here(err)
	}
	if record == nil {
		return false, nil
	}
	with, err := a.readLogin(a.t)
	if err != nil {
		return false, here(err)
	}
	if found, _ := judge(record, with, a.firmware, &Machine{VMID: record.VMID}, a.options.now()); found != isOwn {
		return false, nil
	}
	a.options.Log.Info("this machine leaves, and has not left: its agent may start again", "node", record.NodeName)
	return true, nil
}
